/* The common budget of all processes under a `weir exec`. */
#ifndef WP_TREE_H
#define WP_TREE_H

#include <weir/base.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Devices are named by their ordinals here; the host is one, too. Without a tree everything fits, and others have nothing. */
enum { WP_HOST = -1 };

/* Whether there is a tree. */
bool wp_tree_is(void);
/* The detail says why a process cannot be in its tree; it gets no memory then. */
weir_status wp_tree_join(int ordinal);

/* Takes bytes of the tree's budget for memory that is about to be made; false: the others leave too little. */
bool wp_tree_take(int ordinal, uint64_t bytes);
/* Gives bytes back to the budget, when the driver has the memory back. */
void wp_tree_give(int ordinal, uint64_t bytes);

/* The budget of a device, and the bytes that processes have of it. */
typedef struct wp_tree_view {
    uint64_t budget; /* UINT64_MAX: nobody has said it */
    uint64_t mine, others;
    uint64_t peak; /* the most that the processes had together */
} wp_tree_view;
wp_tree_view wp_tree_look(int ordinal);
/* Makes the budget that a process has measured the tree's budget, unless the tree already has a budget. */
void wp_tree_measured(int ordinal, uint64_t budget);
/* Appends to a text who else has what, with numbers and names of processes. */
void wp_tree_say(int ordinal, char *text, size_t capacity);

/* Asks the other processes to give up idle memory of the device, and waits for the answers; false: no other process has
 * memory. */
bool wp_tree_ask(int ordinal, uint64_t bytes);
/* From now on `give` is called, by a thread of its own, when another process asks for bytes. Once for a process. */
void wp_tree_listen(void (*give)(int ordinal, uint64_t bytes));

#endif
