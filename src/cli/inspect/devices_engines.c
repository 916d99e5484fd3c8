#include "devices.h"

#include "cli/engine_file.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <weir/engine.h>

#include <stdlib.h>
#include <string.h>

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

json_t *devices_engines_json(void)
{
    json_t *list = json_array();
    const char *name;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++) {
        const weir_engine *engine = NULL;
        json_t *object = json_pack("{s:o}", "name", text_json(name));
        bool opened = weir_engine_open(name, &engine) == WEIR_OK;
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
    if (weir_engine_open(name, &engine) != WEIR_OK) {
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

void devices_engines_print(void)
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
    table_print(&grid, stdout);
    table_clear(&grid);
}
