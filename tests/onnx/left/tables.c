/* Blocks by address, stacks by what is in them. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "left.h"

enum { BLOCK_BITS = 21, STACK_BITS = 19, STEPS_MOST = 256, GONE = 1 };

typedef struct block {
    _Atomic uintptr_t address; /* 0: never used; GONE: may be used again */
    left_stack *stack;
    size_t bytes;
} block;

static block *blocks;
static left_stack *stacks;
static atomic_uint_fast64_t lost;

/* There at once, so that the tables do not grow while growth is measured. */
static void *make(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool left_tables_make(void)
{
    blocks = make(sizeof *blocks << BLOCK_BITS);
    stacks = make(sizeof *stacks << STACK_BITS);
    return blocks && stacks;
}

static size_t spread(uint64_t value, int bits)
{
    return (size_t)(value * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

/* ---- stacks ------------------------------------------------------------------------------------------------------------ */

static uint64_t key_of(left_kind kind, const uintptr_t *frames, int depth)
{
    uint64_t key = (uint64_t)kind + 1;
    for (int i = 0; i < depth; i++) {
        key = (key ^ frames[i]) * UINT64_C(0xff51afd7ed558ccd);
        key ^= key >> 32;
    }
    return key ? key : 1;
}

left_stack *left_stack_of(left_kind kind, const uintptr_t *frames, int depth)
{
    uint64_t key = key_of(kind, frames, depth);
    size_t at = spread(key, STACK_BITS);
    for (size_t i = 0; i < STEPS_MOST; i++) {
        left_stack *s = &stacks[(at + i) & (((size_t)1 << STACK_BITS) - 1)];
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&s->key, &found, key)) {
            s->kind = kind;
            memcpy(s->frames, frames, (size_t)depth * sizeof *frames);
            atomic_store(&s->depth, depth);
            return s;
        }
        if (found == key)
            return s;
    }
    atomic_fetch_add(&lost, 1);
    return NULL;
}

left_stack *left_next_stack(const left_stack *after)
{
    for (left_stack *s = after ? stacks + (after - stacks) + 1 : stacks; s < stacks + ((size_t)1 << STACK_BITS); s++)
        if (atomic_load(&s->depth))
            return s;
    return NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------ */

static block *block_at(uintptr_t address, size_t step)
{
    return &blocks[(spread(address >> 4, BLOCK_BITS) + step) & (((size_t)1 << BLOCK_BITS) - 1)];
}

/* Nobody else asks for this address meanwhile: the caller alone has it. */
void left_put(uintptr_t address, size_t bytes, left_stack *stack)
{
    for (size_t i = 0; stack && i < STEPS_MOST; i++) {
        block *b = block_at(address, i);
        uintptr_t found = atomic_load(&b->address);
        if (found > GONE || !atomic_compare_exchange_strong(&b->address, &found, address))
            continue;
        b->bytes = bytes;
        b->stack = stack;
        atomic_fetch_add(&stack->bytes, (int64_t)bytes);
        atomic_fetch_add(&stack->blocks, 1);
        return;
    }
    atomic_fetch_add(&lost, 1);
}

left_stack *left_take(uintptr_t address, size_t *bytes)
{
    for (size_t i = 0; i < STEPS_MOST; i++) {
        block *b = block_at(address, i);
        uintptr_t found = atomic_load(&b->address);
        if (found == 0)
            return NULL;
        if (found != address)
            continue;
        left_stack *stack = b->stack;
        *bytes = b->bytes;
        atomic_fetch_sub(&stack->bytes, (int64_t)b->bytes);
        atomic_fetch_sub(&stack->blocks, 1);
        atomic_store(&b->address, GONE);
        return stack;
    }
    return NULL;
}

uint64_t left_lost(void)
{
    return atomic_load(&lost);
}
