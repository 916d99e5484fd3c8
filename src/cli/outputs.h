/* outputs.h: what came out of a model: kept after the engine has taken its own back, written to files, shown. */
#ifndef WEIR_CLI_OUTPUTS_H
#define WEIR_CLI_OUTPUTS_H

#include <weir/engine.h>

#include <jansson.h>

typedef struct outputs {
    weir_tensor *tensors; /* copies, names too */
    char **files;         /* where each was written; NULL: nowhere */
    size_t count;
} outputs;

/* Copies; WEIR_ERR_SYSTEM when there is no memory for it. */
weir_status outputs_keep(const weir_outputs *from, outputs *out);

/* Writes each as FOLDER/NAME.npy, text as NAME.txt. Makes the folder. The first failure is answered, the rest is still
 * written. */
weir_status outputs_write(outputs *kept, const char *folder);

/* [{name, type, shape, file, …}] */
json_t *outputs_json(const outputs *kept);

/* A line for each: name, type, shape, and the file or the first values; text in full unless `streamed`. */
void outputs_print(const outputs *kept, bool streamed);

void outputs_clear(outputs *kept);

#endif
