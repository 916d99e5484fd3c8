/* inputs.h: what goes into a model: what was given for it, and a fixed filling for the rest. */
#ifndef WEIR_CLI_INPUTS_H
#define WEIR_CLI_INPUTS_H

#include "given.h"

#include <weir/engine.h>

typedef struct inputs {
    weir_tensor *tensors; /* names are the model's; data belongs to the tensors */
    size_t count;
} inputs;

/* Makes the inputs of model number `model` and marks those of `given` that it has. A given one for this very model that
 * it lacks is WEIR_ERR_NOT_FOUND, naming its inputs; other failures mean that a value does not fit. */
weir_status inputs_make(const weir_model_info *info, int model, given_input *given, size_t given_count, inputs *out);
void inputs_clear(inputs *made);

/* "input_ids, attention_mask"; the caller frees it. */
char *inputs_names(const weir_model_info *info);

#endif
