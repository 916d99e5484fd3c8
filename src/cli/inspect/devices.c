/* devices.c: the verb devices: the hardware, and what engines and their providers lack. */
#include <weir/engine.h>
#include <weir/select.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "base/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Engines ---------------------------------------------------------------------------------------------------------- */

static const char *state_name(weir_provider_state state)
{
    switch (state) {
    case WEIR_PROVIDER_HERE:
        return "here";
    case WEIR_PROVIDER_NOT_BUILT:
        return "not built";
    case WEIR_PROVIDER_NOT_LOADABLE:
        return "not loadable";
    case WEIR_PROVIDER_NO_LIBRARY:
        return "no library";
    }
    return "?";
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *providers_json(const weir_engine *engine)
{
    json_t *list = json_array();
    weir_engine_provider p;
    for (size_t i = 0; engine_provider_at(engine, i, &p) == WEIR_OK; i++)
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", text_json(p.name), "state",
                                              state_name(p.state), "library", text_json(p.library), "version",
                                              text_json(p.version), "missing", text_json(p.missing)));
    return list;
}

static json_t *engines_json(void)
{
    json_t *list = json_array();
    const char *name;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++) {
        const weir_engine *engine = NULL;
        json_t *object = json_pack("{s:o}", "name", text_json(name));
        bool opened = weir_engine_get(name, &engine) == WEIR_OK;
        json_object_set_new(object, "missing", text_json(opened ? "" : weir_detail()));
        json_object_set_new(object, "providers", opened ? providers_json(engine) : json_array());
        json_array_append_new(list, object);
    }
    return list;
}

/* For people ------------------------------------------------------------------------------------------------------- */

static void provider_row(table *grid, const char *engine, const weir_engine_provider *p)
{
    bool here = p->state == WEIR_PROVIDER_HERE;
    table_row(grid);
    table_cell(grid, engine, terminal_bold(), false);
    table_cell(grid, p->name, "", false);
    table_cell(grid, state_name(p->state), here ? terminal_green() : terminal_yellow(), false);
    table_cell(grid, p->version, "", false);
    table_cell(grid, here ? p->library : p->missing, terminal_faint(), false);
}

static void engine_rows(table *grid, const char *name)
{
    const weir_engine *engine = NULL;
    weir_engine_provider p;
    if (weir_engine_get(name, &engine) != WEIR_OK) {
        table_row(grid);
        table_cell(grid, name, terminal_bold(), false);
        table_cell(grid, "", "", false);
        table_cell(grid, "cannot be opened", terminal_red(), false);
        table_cell(grid, "", "", false);
        table_cell(grid, weir_detail(), terminal_faint(), false);
        return;
    }
    for (size_t i = 0; engine_provider_at(engine, i, &p) == WEIR_OK; i++)
        provider_row(grid, i == 0 ? name : "", &p);
}

static void print_engines(void)
{
    table grid = {0};
    const char *name;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++) {
        char *copy = text_copy(name);
        engine_rows(&grid, copy);
        free(copy);
    }
    puts("");
    if (grid.count == 0)
        puts("no engine plug-in found (weir-engine-NAME.so); WEIR_ENGINE_PATH names other places to look in");
    table_end(&grid);
}

/* Hardware --------------------------------------------------------------------------------------------------------- */

/* As JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *inspect_devices_bytes_json(uint64_t bytes)
{
    return bytes == WEIR_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *version_json(weir_version_number version)
{
    char text[48];
    return version.count == 0 ? json_null() : json_string(wi_version_write(version, text, sizeof text));
}

static json_t *device_json(const weir_hardware_device *d)
{
    json_t *object = json_object();
    json_object_set_new(object, "kind", json_string(weir_name_of(WEIR_NAMES_HARDWARE, d->kind)));
    json_object_set_new(object, "key", text_json(d->key));
    json_object_set_new(object, "parent", text_json(d->parent));
    json_object_set_new(object, "pci", text_json(d->pci));
    json_object_set_new(object, "name", text_json(d->name));
    json_object_set_new(object, "runtime", text_json(d->runtime));
    json_object_set_new(object, "ordinal", json_integer(d->ordinal));
    json_object_set_new(object, "total", inspect_devices_bytes_json(d->total));
    json_object_set_new(object, "free", inspect_devices_bytes_json(d->free));
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

static int inspect_devices_print_json(const weir_hardware *hardware)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < hardware->device_count; i++)
        json_array_append_new(devices, device_json(&hardware->devices[i]));
    return cli_print_json(json_pack("{s:o, s:o, s:o, s:f}", "devices", devices, "engines", engines_json(), "remarks",
                                    lines_json(hardware->remarks), "seconds", hardware->seconds));
}

/* For people ------------------------------------------------------------------------------------------------------- */

static void inspect_devices_bytes_cell(table *grid, uint64_t bytes)
{
    char text[24];
    table_cell(grid, bytes == WEIR_BYTES_UNKNOWN ? "?" : weir_size_format(bytes, text, sizeof text), "", true);
}

/* Writes a cell with the device's capability, versions of driver and runtime, shared memory and parent. */
static void facts_cell(table *grid, const weir_hardware_device *d)
{
    char capability[48], driver[48], runtime[48];
    char *text = text_print("%s%s%s%s%s%s%s%s%s", d->capability.count ? "capability " : "",
                            d->capability.count ? wi_version_write(d->capability, capability, sizeof capability) : "",
                            d->driver.count ? ", driver " : "",
                            d->driver.count ? wi_version_write(d->driver, driver, sizeof driver) : "",
                            d->driver_runtime.count ? d->kind == WEIR_HARDWARE_CUDA ? ", CUDA " : ", ROCm " : "",
                            d->driver_runtime.count ? wi_version_write(d->driver_runtime, runtime, sizeof runtime) : "",
                            d->shares_host && d->kind != WEIR_HARDWARE_CPU ? ", memory is the host's" : "",
                            d->parent[0] ? ", slice of " : "", d->parent);
    table_cell(grid, text[0] == ',' ? text + 2 : text, terminal_faint(), false);
    free(text);
}

static void device_row(table *grid, const weir_hardware_device *d)
{
    table_row(grid);
    table_cell(grid, d->runtime[0] ? d->runtime : "-", d->usable ? terminal_bold() : terminal_faint(), false);
    table_cell(grid, weir_name_of(WEIR_NAMES_HARDWARE, d->kind), "", false);
    table_cell(grid, d->name, "", false);
    inspect_devices_bytes_cell(grid, d->total);
    inspect_devices_bytes_cell(grid, d->free);
    table_own(grid, d->units ? text_print("%u", d->units) : text_copy("?"), "", true);
    table_cell(grid, d->key, "", false);
    facts_cell(grid, d);
}

static void inspect_devices_print_devices(const weir_hardware *hardware)
{
    static const char *const titles[] = {"device", "kind", "name", "memory", "free", "units", "key", ""};
    table grid = {0};
    table_row(&grid);
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        table_cell(&grid, titles[i], terminal_bold(), i >= 3 && i <= 5);
    for (size_t i = 0; i < hardware->device_count; i++)
        device_row(&grid, &hardware->devices[i]);
    table_end(&grid);
    for (size_t i = 0; i < hardware->device_count; i++) {
        const weir_hardware_device *d = &hardware->devices[i];
        char *remark = text_clean(d->remark, strlen(d->remark), false);
        if (remark[0] != '\0')
            printf("%s%s: %s%s\n", d->usable ? "" : terminal_yellow(), d->key, remark, terminal_plain());
        free(remark);
    }
}

static void inspect_devices_print_remarks(const char *lines)
{
    char *clean = text_clean(lines, strlen(lines), true);
    printf("\n%s%s%s\n", terminal_faint(), clean, terminal_plain());
    free(clean);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

typedef struct devices_args {
    const char *sysroot;
    bool json;
} devices_args;

static const arg option_list[] = {
    {"sysroot", "DIR",
     "another machine's files (proc, sys, dev, usr/lib) in a directory; libraries in its usr/lib are opened and run, "
     "so it "
     "must be one to trust. Engines are those of this machine",
     ARG_TEXT, .at = offsetof(devices_args, sysroot)},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(devices_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "devices",
    .usage = "devices [--sysroot DIR] [--json]",
    .about =
        "Shows what this machine has: the processor and its GPUs, with the memory that can be had of each now, and the "
        "engines with their providers: whether each can be used here, and what is missing if not (the library, the "
        "version wanted, the version found). No context is made on a device.",
    .options = option_list,
    .notes =
        "A device is called as --device takes it (host, cuda:0); \"-\" is one that weir has no driver for or that is "
        "hidden from this process. Sources that do not answer within 400 ms are named, and what they tell is left "
        "out."};

int verb_devices(int argc, char **argv)
{
    devices_args args = {0};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    weir_hardware_options look = WEIR_INIT(weir_hardware_options);
    weir_hardware *hardware = NULL;
    look.sysroot = args.sysroot;
    if (weir_hardware_create(&look, &hardware) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (args.json) {
        status = inspect_devices_print_json(hardware);
    } else {
        inspect_devices_print_devices(hardware);
        print_engines();
        inspect_devices_print_remarks(hardware->remarks);
        status = cli_flush(CLI_OK);
    }
    weir_hardware_destroy(hardware);
    return status;
}
