#include "failure.h"

#include "cli.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

void failure_take(failure *out, weir_status status, const char *stage)
{
    if (status == WEIR_OK || out->status != WEIR_OK)
        return;
    *out = (failure){.status = status, .stage = stage, .detail = text_copy(weir_detail())};
    out->refusal = WEIR_INIT(weir_refusal);
    if (status != WEIR_ERR_OUT_OF_MEMORY || weir_refusal_last(&out->refusal) != WEIR_OK)
        out->refusal = (weir_refusal){0};
}

void failure_tell(const failure *failed, const char *model)
{
    /* A refusal's detail begins with the client's name already. */
    bool named = strncmp(failed->detail, model, strlen(model)) == 0;
    cli_fail("%s%s%s%s%s", named ? "" : model, named ? "" : ": ",
             failed->detail[0] != '\0' ? failed->detail : weir_status_name(failed->status),
             failed->remedy != NULL ? "; " : "", failed->remedy != NULL ? failed->remedy : "");
}

static const char *cause_name(weir_refusal_cause cause)
{
    static const char *const names[] = {"none",    "budget", "maximum",       "fragmentation",
                                        "pending", "device", "other process", "address range"};
    return (size_t)cause < sizeof names / sizeof names[0] ? names[cause] : "?";
}

static json_t *refusal_json(const weir_refusal *refusal)
{
    json_t *holders = json_array();
    for (int i = 0; i < WEIR_REFUSAL_HOLDERS && refusal->holders[i].client[0] != '\0'; i++)
        json_array_append_new(holders, json_pack("{s:o, s:I}", "client", text_json(refusal->holders[i].client), "bytes",
                                                 (json_int_t)refusal->holders[i].bytes));
    return json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "cause", cause_name(refusal->cause),
                     "client", text_json(refusal->client), "device", refusal->device, "class",
                     weir_class_name(refusal->memory_class), "requested", (json_int_t)refusal->requested, "current",
                     (json_int_t)refusal->current, "remaining", (json_int_t)refusal->remaining, "limit",
                     (json_int_t)refusal->limit, "largest", (json_int_t)refusal->largest, "needed",
                     (json_int_t)refusal->needed, "holders", holders);
}

json_t *failure_json(const failure *failed, const char *model)
{
    json_t *object = json_pack("{s:s, s:o, s:o, s:s}", "status", weir_status_name(failed->status), "detail",
                               text_json(failed->detail), "model", model != NULL ? text_json(model) : json_null(),
                               "stage", failed->stage);
    if (failed->remedy != NULL)
        json_object_set_new(object, "remedy", text_json(failed->remedy));
    if (failed->refusal.cause != WEIR_CAUSE_NONE)
        json_object_set_new(object, "refusal", refusal_json(&failed->refusal));
    return object;
}

void failure_clear(failure *failed)
{
    free(failed->detail);
    free(failed->remedy);
    *failed = (failure){0};
}
