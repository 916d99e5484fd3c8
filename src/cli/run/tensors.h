/* tensors.h: inputs and outputs of a model: arguments, files, synthetic values. */
#ifndef WEIR_CLI_RUN_TENSORS_H
#define WEIR_CLI_RUN_TENSORS_H

#include <weir/engine.h>

#include <jansson.h>

/* Arguments: inputs.c ---------------------------------------------------------------------------------------------- */

enum { INPUT_ARG_EVERY_MODEL = -1 };

typedef enum input_arg_kind {
    INPUT_ARG_TEXT = 0,  /* the text itself, or numbers */
    INPUT_ARG_LINES = 1, /* @FILE */
    INPUT_ARG_SHAPE = 2, /* shape:2x16 */
    INPUT_ARG_ARRAY = 3  /* FILE.npy */
} input_arg_kind;

/* One --input or --prompt. */
typedef struct input_arg {
    const char *option; /* "--input" or "--prompt" */
    int model;          /* INPUT_ARG_EVERY_MODEL: every model with such an input */
    char *name;         /* up to the first '=' */
    char *word;         /* all of NAME=VALUE; NULL for a prompt */
    input_arg_kind kind;
    char *value; /* as typed; INPUT_ARG_LINES: the content of the file */
    weir_tensor array;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
    bool used;
} input_arg;

/* Reads "shape:2x16", "file.npy", "@file" or text. WEIR_ERR_INVALID is bad usage; other statuses mean that a file is at
 * fault. */
weir_status input_arg_read(const char *value, input_arg *out);
void input_arg_clear(input_arg *arg);

/* Inputs: inputs.c ------------------------------------------------------------------------------------------------- */

typedef struct inputs {
    weir_tensor *tensors; /* their names belong to the model, their data to the tensors */
    size_t count;
    bool *open;   /* by tensor: it was filled, and the model leaves extents of it open */
    char *filled; /* those whose open extents were filled, "input [1, 16], state [2, 1, 128]"; NULL: none */
} inputs;

/* What open extents beside an input's first one are filled with, in the order in which they are tried: the first does for most
 * models, others want less, or a multiple of something. */
enum { INPUTS_EXTENTS = 20 };
extern const int64_t inputs_extents[INPUTS_EXTENTS];

/* Makes the inputs of model number `model`: from `args` where one names the input, else synthetic, with open extents of 1 where
 * they are the first and else of `extent`. Marks the args that were used. An argument for this very model that names no input of it is WEIR_ERR_NOT_FOUND, and the detail lists the
 * inputs; other failures mean that a value does not fit. */
weir_status inputs_make(const weir_model_details *info, int model, input_arg *args, size_t arg_count, int64_t extent,
                        inputs *out);
void inputs_clear(inputs *made);

/* Fills input number `index` again, in another shape of the same rank. */
weir_status inputs_refill(inputs *made, size_t index, const int64_t *shape);

/* extents.c: fills open inputs again, with extents that the constants of the ONNX model at `path` ask for; the others stay.
 * false: nothing better was found. Without the reader of ONNX models nothing is. */
#ifdef WEIR_PLAN_MODELS
bool extents_demand(const char *path, inputs *made);
#else
static inline bool extents_demand(const char *path, inputs *made)
{
    (void)path, (void)made;
    return false;
}
#endif

/* "input_ids, attention_mask"; the caller frees it. */
char *inputs_names(const weir_model_details *info);

/* Outputs: outputs.c ----------------------------------------------------------------------------------------------- */

typedef struct outputs {
    weir_tensor *tensors; /* copies, names too */
    char **files;         /* where each was written; NULL: nowhere */
    size_t count;
} outputs;

/* Copies them, because the engine takes its own back; WEIR_ERR_SYSTEM without memory. */
weir_status outputs_keep(const weir_outputs *from, outputs *out);

/* Makes the folder and writes FOLDER/NAME.npy, or NAME.txt for text. After a failure the others are still written; the
 * first failure is the answer. */
weir_status outputs_write(outputs *all, const char *folder);

/* [{name, type, shape, file, …}] */
json_t *outputs_json(const outputs *all);

/* A line for each: name, type, shape, and the file or the first values. Text is shown in full unless it was `streamed`.
 */
void outputs_print(const outputs *all, bool streamed);

void outputs_clear(outputs *all);

/* A name as one component of a path: no slash, no leading dot, no control character, bounded length. The caller frees
 * it. */
char *file_name_of(const char *name);

/* Files: npy.c ----------------------------------------------------------------------------------------------------- */

/* Opens a regular file for reading and tells its length. Never blocks: a pipe may have no writer. WEIR_ERR_NOT_FOUND,
 * WEIR_ERR_SYSTEM; WEIR_ERR_UNSUPPORTED for anything but a regular file. */
weir_status read_file_open(const char *path, FILE **file, uint64_t *bytes);

/* Reads a NumPy array file, version 1.0, 2.0 or 3.0: little-endian, C order, the number types of weir_type and bool.
 * The caller frees out->data. WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM, WEIR_ERR_CORRUPT or WEIR_ERR_UNSUPPORTED; the detail
 * names the file. */
weir_status npy_read(const char *path, weir_tensor *out);

/* Writes a tensor of numbers. Types that NumPy lacks are stored as unsigned integers of the same width. */
weir_status npy_write(const char *path, const weir_tensor *tensor);

/* The type that npy_write stores: the type itself, WEIR_TYPE_U16 for bf16, WEIR_TYPE_U8 for the f8 types; NONE for
 * text. */
weir_type npy_stored_type(weir_type type);

/* Numbers: numbers.c ----------------------------------------------------------------------------------------------- */

/* Synthetic values: integers are 1, bools true, floats uniform in [0, 1) from a fixed seed, the same on every machine.
 */
void numbers_synthesize(weir_type type, void *data, size_t bytes);

/* How many numbers "1, 2,3" lists; 0: it is no such list. */
size_t numbers_count(const char *text);

/* Writes the listed numbers to `data`; WEIR_ERR_INVALID when one is not of that type. */
weir_status numbers_read(const char *text, weir_type type, void *data);

/* The value of element number `index` of a floating-point type, the f8 types among them. */
double numbers_real(weir_type type, const void *data, size_t index);

/* Writes element number `index` as what it is: whole numbers with all digits, others with five. Answers `text`. */
const char *numbers_text(weir_type type, const void *data, size_t index, char *text, size_t capacity);

#endif
