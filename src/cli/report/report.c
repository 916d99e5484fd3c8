/* report.c: the verb report. */
#include "report.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "base/values.h"

#include <stdlib.h>

/* Arguments -------------------------------------------------------------------------------------------------------- */

static int report_read_budget(const arg *option, const char *value, void *to)
{
    report_args *args = to;
    if (wi_size_parse(value, &args->budget) != WEIR_OK || args->budget == 0)
        return cli_usage("report", "--%s %s: a size is wanted, such as 512MiB", option->name, value);
    return -1;
}

static int report_read_file_name(char **operands, size_t count, void *to)
{
    report_args *args = to;
    if (count == 0 || operands[0][0] == '\0')
        return cli_usage("report", "which trace?");
    if (count > 1)
        return cli_usage("report", "one trace is reported at a time, and '%s' is another", operands[1]);
    args->file = operands[0];
    return -1;
}

#define AT(member) .at = offsetof(report_args, member)
static const arg option_list[] = {
    {"output", "FILE", "the page, to be opened in any browser; also -o", ARG_FILE, AT(output), .letter = 'o'},
    {"budget", "SIZE", "the budget, where the trace does not have it", ARG_CALL, .read = report_read_budget},
    {"device", "N", "which one, of a snapshot of several devices", ARG_COUNT, AT(device), 0, 1023},
    {"json", NULL,
     "all that the page shows, as JSON: peak, clients[], tags[], lends[], residency[], refusals[], timeline …",
     ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "report",
    .usage = "report TRACE [-o FILE.html] [OPTION…]",
    .about =
        "Shows what a trace recorded: who held how much when, what lay where, what passed from one client to another,\n"
        "who was suspended and resumed, what was refused, and what was left live at the end. TRACE is weir's binary "
        "trace, the CSV of RMM or of weir, "
        "plain or gzip, or a snapshot of "
        "PyTorch's allocator (torch.cuda.memory._dump_snapshot). With -o it writes a page that needs nothing else.",
    .options = option_list,
    .notes = "Exit status: 0; 1 it failed, with one line on standard error; 2 bad usage.",
    .read_operands = report_read_file_name};

/* All -------------------------------------------------------------------------------------------------------------- */

/* A screen has fewer columns than a curve has points. With many clients the curves have fewer points, so that a page
 * stays small. */
enum { POINTS = 4000, NUMBERS = 160000 };

static weir_status report_make(report *all)
{
    weir_status status = recording_load(all->args->file, all->args->device, &all->trace);
    if (status == WEIR_OK)
        status = lifetimes_make(&all->trace, &all->blocks);
    if (status == WEIR_OK)
        status = samples_make(&all->blocks, POINTS, NUMBERS, &all->held);
    if (status == WEIR_OK)
        status = lends_make(&all->blocks, &all->lent);
    if (status == WEIR_OK && !(all->residency = lifetimes_residencies(&all->blocks, &all->residency_count)))
        status = WEIR_ERR_SYSTEM;
    if (status == WEIR_OK)
        status = address_ranges_make(&all->blocks, &all->ranges);
    if (status == WEIR_OK)
        status = address_map_make(&all->blocks, &all->ranges, &all->map);
    return status;
}

static void report_clear(report *all)
{
    address_map_clear(&all->map);
    address_ranges_clear(&all->ranges);
    free(all->residency);
    lends_clear(&all->lent);
    samples_clear(&all->held);
    lifetimes_clear(&all->blocks);
    recording_clear(&all->trace);
}

/* Names come to the page as data alone, and its script shows them as texts. */
static void report_put_part(FILE *file, const char *mark, void *user)
{
    const report *all = user;
    if (strcmp(mark, "title") == 0) {
        fputs("Memory in ", file);
        text_html(file, report_file_name(all));
        return;
    }
    json_t *data = report_json(all);
    text_html_json(file, data);
    json_decref(data);
}

static weir_status write_page(report *all)
{
    FILE *file = output_file_open(all->args->output, "the report");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    text_page(file, trace_page, report_put_part, all);
    return output_file_close(file, all->args->output, "the report", 0);
}

static int report_answer(report *all)
{
    const report_args *args = all->args;
    if (args->output && write_page(all) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (args->json)
        return cli_print_json(report_json(all));
    report_print(all);
    return cli_flush(CLI_OK);
}

weir_status report_make_page(const char *trace, const char *page)
{
    report_args args = {.file = trace, .output = page, .device = RECORDING_NO_DEVICE};
    report all = {.args = &args};
    weir_status status = report_make(&all);
    if (status == WEIR_OK)
        status = write_page(&all);
    report_clear(&all);
    return status;
}

int verb_report(int argc, char **argv)
{
    report_args args = {.device = RECORDING_NO_DEVICE};
    report all = {.args = &args};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    bool good =
        (!args.output || output_file_check(args.output, "the report") == WEIR_OK) && report_make(&all) == WEIR_OK;
    status = good ? report_answer(&all) : cli_fail("%s", weir_detail());
    report_clear(&all);
    return status;
}
