/* A library to be preloaded, which knows who left what on the host: of each block of malloc that is live, and of each anonymous
 * mapping, its bytes and the stack of calls that it came by. What grew between a mark and a report is told by library.
 *
 *     LD_PRELOAD=…/libonnx-left.so LEFT_TO=FILE PROGRAM…
 *
 * A program that is to be looked at finds the two functions by dlsym, in a run without the tool there are none. */
#ifndef WEIR_TEST_ONNX_LEFT_H
#define WEIR_TEST_ONNX_LEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is there from here on is old. */
void left_mark(void);

/* Bytes of malloc's that were left since the mark, for each of so many rounds; who left them is written to the file that LEFT_TO
 * names, or to standard error. */
double left_report(unsigned long rounds);

/* ---- inside ------------------------------------------------------------------------------------------------------------ */

enum { LEFT_FRAMES = 40 };

typedef enum left_kind { LEFT_HEAP, LEFT_MAPPING } left_kind;

/* A stack of calls, and what is live of it. Return addresses, the nearest first. */
typedef struct left_stack {
    _Atomic uint64_t key; /* 0: nothing is here yet */
    _Atomic int64_t bytes, blocks;
    int64_t bytes_then, blocks_then; /* at the mark */
    left_kind kind;
    _Atomic int depth;
    uintptr_t frames[LEFT_FRAMES];
} left_stack;

/* Blocks and stacks lie in tables that are made once and never locked: a fork in the middle of another thread's allocation
 * leaves nothing locked in the child. */
bool left_tables_make(void);
/* NULL: there is no room. */
left_stack *left_stack_of(left_kind kind, const uintptr_t *frames, int depth);
void left_put(uintptr_t address, size_t bytes, left_stack *stack);
/* The block is no longer known; NULL: it never was. */
left_stack *left_take(uintptr_t address, size_t *bytes);
/* All stacks in turn: NULL after the last. */
left_stack *left_next_stack(const left_stack *after);
/* What found no room in the tables. */
uint64_t left_lost(void);

/* Whether the calling thread's allocations are the tool's own; says what it was. */
bool left_aside(bool own);

/* ---- where an address belongs -------------------------------------------------------------------------------------------- */

typedef struct left_library {
    uintptr_t start, end;
    bool runtime; /* of the language: it allocates for whom calls it */
    char name[96];
} left_library;

/* Takes notice of the libraries that are loaded; those that are gone later are still known. */
void left_libraries_look(void);
const left_library *left_library_of(uintptr_t address);
/* "library+offset name". */
void left_place(uintptr_t address, char *text, size_t size);

/* ---- what the system says ------------------------------------------------------------------------------------------------ */

enum { LEFT_MAPPINGS = 512 };

typedef struct left_mapping {
    char name[96];
    int64_t count, size, resident, anonymous; /* bytes */
} left_mapping;

typedef struct left_process {
    int64_t anonymous, files, shared; /* resident */
    int64_t threads, descriptors;
    int64_t arenas, given; /* what malloc has of the system, and what it has given out */
    size_t mapping_count;
    left_mapping mappings[LEFT_MAPPINGS]; /* by name */
} left_process;

void left_process_read(left_process *p);

#endif
