/* devices.c: `weir devices`: the hardware, and what engines and their providers lack. */
#include "devices.h"

#include "cli/cli.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir devices [--sysroot DIR] [--json]\n\n"
    "Shows what this machine has: the processor and its GPUs, with the memory that can be had of each now, and the\n"
    "engines with their providers: whether each can be used here, and what is missing if not (the library, the "
    "version\n"
    "wanted, the version found). No context is made on a device.\n\n"
    "  --sysroot DIR  another machine's files (proc, sys, dev, usr/lib) in a directory; libraries in its usr/lib are\n"
    "                 opened and run, so it must be one to trust. Engines are those of this machine\n"
    "  --json         one JSON object on standard output\n\n"
    "A device is called as --device takes it (host, cuda:0); \"-\" is one that weir has no driver for or that is "
    "hidden\n"
    "from this process. Sources that do not answer within 400 ms are named, and what they tell is left out.\n";

/* As JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *bytes_json(uint64_t bytes)
{
    return bytes == WEIR_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *version_json(weir_version_number version)
{
    char text[48];
    return version.count == 0 ? json_null() : json_string(weir_version_write(version, text, sizeof text));
}

static json_t *device_json(const weir_hardware_device *d)
{
    json_t *object = json_object();
    json_object_set_new(object, "kind", json_string(weir_hardware_kind_name(d->kind)));
    json_object_set_new(object, "key", text_json(d->key));
    json_object_set_new(object, "parent", text_json(d->parent));
    json_object_set_new(object, "pci", text_json(d->pci));
    json_object_set_new(object, "name", text_json(d->name));
    json_object_set_new(object, "runtime", text_json(d->runtime));
    json_object_set_new(object, "ordinal", json_integer(d->ordinal));
    json_object_set_new(object, "total", bytes_json(d->total));
    json_object_set_new(object, "free", bytes_json(d->free));
    json_object_set_new(object, "shares_host", json_boolean(d->shares_host));
    json_object_set_new(object, "discrete", json_boolean(d->discrete));
    json_object_set_new(object, "units", json_integer(d->units));
    json_object_set_new(object, "capability", version_json(d->capability));
    json_object_set_new(object, "driver", version_json(d->driver));
    json_object_set_new(object, "driver_runtime", version_json(d->driver_runtime));
    json_object_set_new(object, "usable", json_boolean(d->usable));
    json_object_set_new(object, "remark", text_json(d->remark));
    return object;
}

static json_t *lines_json(const char *lines)
{
    json_t *list = json_array();
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n");
        json_array_append_new(list, text_json_bytes(lines, length));
        lines += length + (lines[length] == '\n');
    }
    return list;
}

static int print_json(const weir_hardware *hardware)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < hardware->device_count; i++)
        json_array_append_new(devices, device_json(&hardware->devices[i]));
    return cli_print_json(json_pack("{s:o, s:o, s:o, s:f}", "devices", devices, "engines", devices_engines_json(),
                                    "remarks", lines_json(hardware->remarks), "seconds", hardware->seconds));
}

/* For people ------------------------------------------------------------------------------------------------------- */

static void bytes_cell(table *grid, uint64_t bytes)
{
    char text[24];
    table_cell(grid, bytes == WEIR_BYTES_UNKNOWN ? "?" : weir_size_format(bytes, text, sizeof text), "", true);
}

/* What else is known, in one cell. */
static void facts_cell(table *grid, const weir_hardware_device *d)
{
    char capability[48], driver[48], runtime[48];
    char *text = text_print(
        "%s%s%s%s%s%s%s%s%s", d->capability.count ? "capability " : "",
        d->capability.count ? weir_version_write(d->capability, capability, sizeof capability) : "",
        d->driver.count ? ", driver " : "", d->driver.count ? weir_version_write(d->driver, driver, sizeof driver) : "",
        d->driver_runtime.count ? d->kind == WEIR_HARDWARE_CUDA ? ", CUDA " : ", ROCm " : "",
        d->driver_runtime.count ? weir_version_write(d->driver_runtime, runtime, sizeof runtime) : "",
        d->shares_host && d->kind != WEIR_HARDWARE_CPU ? ", memory is the host's" : "",
        d->parent[0] ? ", slice of " : "", d->parent);
    table_cell(grid, text[0] == ',' ? text + 2 : text, terminal_faint(), false);
    free(text);
}

static void device_row(table *grid, const weir_hardware_device *d)
{
    char units[16];
    snprintf(units, sizeof units, "%u", d->units);
    table_row(grid);
    table_cell(grid, d->runtime[0] ? d->runtime : "-", d->usable ? terminal_bold() : terminal_faint(), false);
    table_cell(grid, weir_hardware_kind_name(d->kind), "", false);
    table_cell(grid, d->name, "", false);
    bytes_cell(grid, d->total);
    bytes_cell(grid, d->free);
    table_cell(grid, d->units ? units : "?", "", true);
    table_cell(grid, d->key, "", false);
    facts_cell(grid, d);
}

static void print_devices(const weir_hardware *hardware)
{
    static const char *const titles[] = {"device", "kind", "name", "memory", "free", "units", "key", ""};
    table grid = {0};
    table_row(&grid);
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        table_cell(&grid, titles[i], terminal_bold(), i >= 3 && i <= 5);
    for (size_t i = 0; i < hardware->device_count; i++)
        device_row(&grid, &hardware->devices[i]);
    table_print(&grid, stdout);
    table_clear(&grid);
    for (size_t i = 0; i < hardware->device_count; i++) {
        const weir_hardware_device *d = &hardware->devices[i];
        char *remark = text_clean(d->remark, strlen(d->remark), false);
        if (remark[0] != '\0')
            printf("%s%s: %s%s\n", d->usable ? "" : terminal_yellow(), d->key, remark, terminal_plain());
        free(remark);
    }
}

static void print_remarks(const char *lines)
{
    char *clean = text_clean(lines, strlen(lines), true);
    printf("\n%s%s%s\n", terminal_faint(), clean, terminal_plain());
    free(clean);
}

/* The words of the verb; -1 to go on. */
static int read_words(int argc, char **argv, const char **sysroot, bool *json)
{
    static const struct option words[] = {
        {"sysroot", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    optind = 0;
    for (int code; (code = getopt_long(argc, argv, "+:h", words, NULL)) != -1;) {
        if (code == 's') {
            *sysroot = optarg;
        } else if (code == 'j') {
            *json = true;
        } else if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        } else {
            return cli_bad_option("devices", code, argv);
        }
    }
    if (optind < argc)
        return cli_usage("devices", "unexpected argument '%s'", argv[optind]);
    return -1;
}

int verb_devices(int argc, char **argv)
{
    const char *sysroot = NULL;
    bool json = false;
    int status = read_words(argc, argv, &sysroot, &json);
    if (status >= 0)
        return status;
    weir_hardware_options options = WEIR_INIT(weir_hardware_options);
    options.sysroot = sysroot;
    weir_hardware *hardware = NULL;
    if (weir_hardware_look(&options, &hardware) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (json) {
        status = print_json(hardware);
    } else {
        print_devices(hardware);
        devices_engines_print();
        print_remarks(hardware->remarks);
        status = cli_flush(CLI_OK);
    }
    weir_hardware_release(hardware);
    return status;
}
