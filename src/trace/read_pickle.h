/* Reads pickles of plain data, of protocol 0 to 5: dictionaries, lists, tuples, texts, numbers, True, False and None.
 * An instruction that would find a class or call something is refused, as is everything else: nothing in the file is
 * believed, and nothing in it runs. The memory taken is bounded by the size of the file. */
#ifndef WI_TRACE_READ_PICKLE_H
#define WI_TRACE_READ_PICKLE_H

#include <weir/base.h>

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INTEGER,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_LIST,  /* or a tuple */
    PICKLE_PAIRS, /* a dictionary: key, value, key, value … */
} pickle_kind;

typedef struct pickle_value pickle_value;

struct pickle_value {
    pickle_kind kind;
    bool negative;  /* of an integer: `number` is a two's complement */
    uint64_t count; /* of the items; the bytes of a text */
    union {
        uint64_t number;
        double real;
        const char *text; /* not terminated */
        pickle_value **items;
    };
};

typedef struct pickle pickle;

/* WEIR_ERR_SYSTEM: it cannot be read; WEIR_ERR_CORRUPT: it is no pickle, with the byte where it stops being one;
 * WEIR_ERR_UNSUPPORTED: it has more than plain data. */
weir_status pickle_load(const char *path, pickle **out);
const pickle_value *pickle_root(const pickle *p);
void pickle_free(pickle *p);

/* Looking takes steps, of which there are as many as a file of that size can need: values that stand in many places at
 * once would otherwise be looked at for ever. Once the steps are spent, pickle_get and pickle_item find nothing. */
const pickle_value *pickle_get(pickle *p, const pickle_value *pairs, const char *key); /* NULL: it has none */
const pickle_value *pickle_item(pickle *p, const pickle_value *list, uint64_t place);  /* NULL: it has none */
bool pickle_spent(const pickle *p);

/* The number; `otherwise` where it is none, or less than 0. */
uint64_t pickle_number(const pickle_value *value, uint64_t otherwise);
bool pickle_is(const pickle_value *value, const char *text);

#endif
