/* folder.c: the graph of a model in ONNX Runtime GenAI's form, a folder whose genai_config.json names it. */
#include "plan.h"

#include "base/paths.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

static const char config_name[] = "genai_config.json";

/* With a slash at its end; "" is the working directory. */
static char *plan_folder_of(const char *path)
{
    if (!wi_suffix_of(config_name, path))
        return text_print("%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/");
    const char *slash = strrchr(path, '/');
    return text_print("%.*s", slash ? (int)(slash + 1 - path) : 0, path);
}

/* GenAI's own name for it is taken where the config has none. */
static weir_status plan_folder_read_name(const char *config, char **name)
{
    json_error_t error;
    json_t *root = json_load_file(config, 0, &error);
    const json_t *decoder = json_object_get(json_object_get(root, "model"), "decoder");
    const json_t *given = json_object_get(decoder, "filename");
    weir_status status = WEIR_OK;
    if (!root)
        status = weir_fail(WEIR_ERR_CORRUPT, "%s:%d:%d: %s", config, error.line, error.column, error.text);
    else if (!json_is_object(decoder) || (given && !json_is_string(given)))
        status = weir_fail(WEIR_ERR_CORRUPT, "%s names no graph: \"model\", \"decoder\", \"filename\"", config);
    else
        *name = text_copy(given ? json_string_value(given) : "model.onnx");
    json_decref(root);
    return status;
}

weir_status plan_graph_find(plan_args *args)
{
    if (!wi_path_taken(config_name, args->file))
        return WEIR_OK;
    char *folder = plan_folder_of(args->file), *config = text_print("%s%s", folder, config_name), *name = NULL;
    weir_status status = plan_folder_read_name(config, &name);
    if (status == WEIR_OK) {
        free(args->file);
        args->file = text_print("%s%s", folder, name);
    }
    free(name);
    free(config);
    free(folder);
    return status;
}
