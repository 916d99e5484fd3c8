/* good_folder.h: a folder of a model in which nothing is wrong, to be made wrong in one place. */
#ifndef LLM_GOOD_FOLDER_H
#define LLM_GOOD_FOLDER_H

#include "graph.h"

#include <weir/base.h>

/* Where it is. */
extern char folder[64];

/* What is in its files. */
extern const char good_config[], good_tokenizer[], good_words[];
extern const graph_shape good_graph;

/* What stands in place of a text of a file, and how the folder is refused then. */
typedef struct wrong {
    const char *one, *other;
    weir_status status;
    const char *words;
} wrong;

#define BAD WEIR_ERR_CORRUPT
#define NOT WEIR_ERR_UNSUPPORTED

/* Before and after a test. */
int write_folder(void **state);
int drop_folder(void **state);
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, write_folder, drop_folder)

void write_file(const char *name, const char *text);
void write_graph(const graph_shape *shape);
/* Writes the file with one of its texts become another. */
void with(const char *name, const char *text, const char *one, const char *other);
/* Reads the folder, which is refused so. */
void refused(weir_status status, const char *words);

#endif
