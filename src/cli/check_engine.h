/* check_engine.h: what the engines that are here have to say of a manifest. Nothing is loaded, and no device is asked. */
#ifndef WEIR_CLI_CHECK_ENGINE_H
#define WEIR_CLI_CHECK_ENGINE_H

#include <weir/manifest.h>

typedef struct check_engine {
    char *name;     /* of the engine that the model is for; NULL: not looked for */
    bool here;      /* it could run a model, by one provider at least */
    char **remarks; /* what is not here, and how to get it */
    size_t remark_count;
} check_engine;

/* WEIR_ERR_UNSUPPORTED where the model is none that an engine here knows, and WEIR_ERR_INVALID where the engine would refuse its settings by
 * whatever provider the manifest allows. That the engine is not here is a remark. check_engine_clear in any case. */
weir_status check_engine_look(const weir_manifest *manifest, check_engine *out);
void check_engine_clear(check_engine *engine);

#endif
