/* The history of PyTorch's allocations, for torch.cuda.memory._record_memory_history: the last events of each device in a
 * ring, the frames of Python that allocated each live block, and observers of refusals.
 *
 * Locks. An allocating thread may or may not have the interpreter's lock (the GIL). A thread that waits for the GIL with a
 * lock of weir's in hand deadlocks with a thread that has the GIL and waits for weir's lock. Therefore frames are gathered
 * and dropped while no lock of weir's is held, before the event is put into the ring; and under the history's lock nothing
 * is asked of the interpreter. PyTorch calls its pluggable allocator without a lock of PyTorch's. A program that holds a
 * lock of its own around an allocation, on a thread without the GIL, runs the same risk with PyTorch's own recorder.
 *
 * Walking a stack runs no Python code, except that the collector may start, whose finalisers may free device memory and so
 * come back here. Unused stacks wait in a list until the next thread that has the GIL drops them. */
#include "seams/torch.h"
#include "seams/seams.h"

#include "base/maps.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 32, EVENTS = 1024 }; /* the first room for frames of a stack, and for events of a ring */
enum { NATIVE_FRAMES = 128 };        /* the most of C and C++ */

struct wseam_torch_stack {
    wseam_torch_stack *next; /* in the list of unused stacks */
    size_t uses;
    wseam_torch_frames told;
    wseam_torch_frame frames[];
};

/* A ring of events. The oldest event is at `next` when the ring is full. */
typedef struct history_ring {
    wseam_torch_event *events;
    size_t room, count, next;
} history_ring;

/* A block from its allocation until weir has the block back. */
typedef struct history_block {
    wseam_torch_event event;
    wseam_torch_stack *freed; /* the frames of the free; NULL: no frames, or the block lives */
    bool freeing;
} history_block;

static struct {
    pthread_mutex_t lock; /* of the members that are not atomic */
    atomic_bool on;
    atomic_int context;
    atomic_bool native;
    _Atomic(wseam_torch_observer) observer;
    wseam_torch_interpreter python;
    uint32_t skipped;
    size_t entries; /* the most events of a device; 0: no events are kept */
    history_ring rings[WTORCH_DEVICES];
    wi_pointer_map blocks; /* to history_block */
    wseam_torch_stack *unused;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool history_is_on(void)
{
    return atomic_load_explicit(&history.on, memory_order_acquire);
}

/* Stacks ----------------------------------------------------------------------------------------------------------- */

/* A stack under construction. */
typedef struct history_walk {
    wseam_torch_stack *stack;
    size_t room, count;
} history_walk;

/* False: no host memory. */
static bool history_add_frame(history_walk *walk, void *code, int64_t place)
{
    if (walk->count == walk->room) {
        size_t more = walk->room ? 2 * walk->room : FRAMES;
        wseam_torch_stack *larger = realloc(walk->stack, sizeof *larger + more * sizeof *larger->frames);
        if (!larger)
            return false;
        walk->stack = larger, walk->room = more;
    }
    walk->stack->frames[walk->count++] = (wseam_torch_frame){code, place};
    return true;
}

/* Adds the frames of C and C++. Takes a microsecond for every few frames. */
static void history_walk_native(history_walk *walk)
{
    void *calls[NATIVE_FRAMES];
    int count = backtrace(calls, NATIVE_FRAMES);
    for (int i = 0; i < count; i++)
        if (!history_add_frame(walk, NULL, (int64_t)(intptr_t)calls[i] - 1)) /* within the call, not behind it */
            return;
}

/* The GIL is held, and no lock of weir's. */
static void history_walk_python(history_walk *walk, const wseam_torch_interpreter *python)
{
    for (void *frame = python->first(python->thread()), *outer; frame; frame = outer) {
        void *code = python->code(frame);
        outer = NULL;
        if (history_add_frame(walk, code, python->place(frame)))
            outer = python->outer(frame);
        else
            python->drop(code);
        python->drop(frame);
    }
}

/* NULL: no host memory, or no frames. */
static wseam_torch_stack *history_walked(const history_walk *walk)
{
    if (!walk->stack)
        return NULL;
    wseam_torch_stack *stack = realloc(walk->stack, sizeof *stack + walk->count * sizeof *stack->frames);
    if (!stack)
        stack = walk->stack; /* longer than its frames */
    stack->next = NULL, stack->uses = 1;
    stack->told = (wseam_torch_frames){walk->count, stack->frames};
    return stack;
}

/* Drops unused stacks. The GIL is held, and no lock of weir's. */
static void history_sweep(const wseam_torch_interpreter *python)
{
    pthread_mutex_lock(&history.lock);
    wseam_torch_stack *list = history.unused;
    history.unused = NULL;
    pthread_mutex_unlock(&history.lock);
    for (wseam_torch_stack *stack = list, *next; stack; stack = next) {
        next = stack->next;
        for (size_t i = 0; i < stack->told.count; i++)
            if (stack->frames[i].code)
                python->drop(stack->frames[i].code);
        free(stack);
    }
}

/* Gathers the frames of the calling thread, where the history has frames for this context, and drops unused stacks. No lock
 * of weir's is held. NULL: no frames; an interpreter that has not started, or has ended, is not asked. */
static wseam_torch_stack *history_gather(int context)
{
    const wseam_torch_interpreter *python = &history.python; /* stays as it is from the first begin on */
    if (atomic_load(&history.context) < context || !python->ready())
        return NULL;
    history_walk walk = {.stack = NULL};
    if (atomic_load_explicit(&history.native, memory_order_relaxed))
        history_walk_native(&walk);
    int before = python->enter();
    history_sweep(python);
    history_walk_python(&walk, python);
    python->leave(before);
    return history_walked(&walk);
}

static void history_sweep_alone(void)
{
    const wseam_torch_interpreter *python = &history.python;
    if (!python->ready || !python->ready())
        return;
    int before = python->enter();
    history_sweep(python);
    python->leave(before);
}

/* With the lock held ----------------------------------------------------------------------------------------------- */

static wseam_torch_stack *history_share(wseam_torch_stack *stack)
{
    if (stack)
        stack->uses++;
    return stack;
}

static void history_unshare(wseam_torch_stack *stack)
{
    if (!stack || --stack->uses > 0)
        return;
    stack->next = history.unused;
    history.unused = stack;
}

static bool history_grow(history_ring *ring)
{
    size_t room = ring->room ? 2 * ring->room : EVENTS;
    room = room < history.entries ? room : history.entries;
    wseam_torch_event *more = realloc(ring->events, room * sizeof *more);
    if (!more)
        return false;
    ring->events = more;
    ring->room = room;
    return true;
}

/* Returns the place of the next event. The ring counts as full when host memory for more is refused. NULL: no room. */
static wseam_torch_event *history_slot(history_ring *ring)
{
    if (ring->count == ring->room && ring->next == 0 && ring->room < history.entries)
        (void)history_grow(ring);
    if (ring->count < ring->room)
        return &ring->events[ring->count++];
    if (ring->room == 0)
        return NULL;
    wseam_torch_event *oldest = &ring->events[ring->next];
    ring->next = (ring->next + 1) % ring->room;
    history_unshare(oldest->stack);
    return oldest;
}

static const wseam_torch_event *history_at(const history_ring *ring, size_t place)
{
    return &ring->events[(ring->next + place) % ring->count];
}

/* Keeps the last `most` events, in order from the first place on; without host memory, no events. */
static void history_cut(history_ring *ring, size_t most)
{
    size_t kept = ring->count < most ? ring->count : most, gone = ring->count - kept;
    wseam_torch_event *events = kept ? malloc(kept * sizeof *events) : NULL;
    kept = events ? kept : 0;
    for (size_t i = 0; i < ring->count; i++) {
        const wseam_torch_event *event = history_at(ring, i);
        if (i >= gone && events)
            events[i - gone] = *event;
        else
            history_unshare(event->stack);
    }
    free(ring->events);
    *ring = (history_ring){.events = events, .room = kept, .count = kept};
}

static void history_put(const wseam_torch_event *event, uint32_t action, wseam_torch_stack *stack)
{
    struct timespec now;
    wseam_torch_event *slot = history.skipped >> action & 1U ? NULL : history_slot(&history.rings[event->device]);
    if (!slot)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    *slot = *event;
    slot->action = action;
    slot->microseconds = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    slot->stack = atomic_load(&history.context) >= WSEAM_TORCH_OF_ALLOCATIONS ? history_share(stack) : NULL;
}

static history_block *history_find(const void *pointer)
{
    uint64_t value = 0;
    return wi_pointer_map_get(&history.blocks, pointer, &value) ? (history_block *)(uintptr_t)value : NULL;
}

static void history_free_block(history_block *block)
{
    history_unshare(block->event.stack);
    history_unshare(block->freed);
    free(block);
}

static void history_drop(const void *pointer)
{
    uint64_t value = 0;
    if (wi_pointer_map_remove(&history.blocks, pointer, &value))
        history_free_block((history_block *)(uintptr_t)value);
}

/* Enters the block. NULL: no host memory, and the block stays unknown. */
static history_block *history_note(const wseam_torch_event *event)
{
    const void *pointer = (const void *)(uintptr_t)event->address;
    history_block *block = malloc(sizeof *block);
    history_drop(pointer);
    if (!block)
        return NULL;
    *block = (history_block){.event = *event};
    if (!wi_pointer_map_put(&history.blocks, pointer, (uintptr_t)block)) {
        free(block);
        return NULL;
    }
    history_share(event->stack);
    return block;
}

static void history_forget_blocks(void)
{
    for (size_t i = 0; i < history.blocks.capacity; i++)
        if (history.blocks.entries[i].pointer)
            history_free_block((history_block *)(uintptr_t)history.blocks.entries[i].value);
    wi_pointer_map_clear(&history.blocks);
}

/* Events, without a lock ------------------------------------------------------------------------------------------- */

static wseam_torch_event history_event(const void *pointer, size_t bytes, int device, const void *native)
{
    wseam_torch_event event = {
        .device = device, .address = (uintptr_t)pointer, .bytes = bytes, .native = (uintptr_t)native};
    if (pointer)
        (void)wseam_torch_pool_of(pointer, event.pool);
    return event;
}

void wtorch_history_allocated(const void *pointer, size_t bytes, int device, const void *native)
{
    if (!history_is_on())
        return;
    wseam_torch_event event = history_event(pointer, bytes, device, native);
    event.stack = history_gather(WSEAM_TORCH_OF_LIVE);
    pthread_mutex_lock(&history.lock);
    if (history_is_on()) {
        (void)history_note(&event);
        history_put(&event, WSEAM_TORCH_ALLOC, event.stack);
    }
    history_unshare(event.stack);
    pthread_mutex_unlock(&history.lock);
}

void wtorch_history_freeing(const void *pointer, size_t bytes, int device, const void *native)
{
    if (!history_is_on())
        return;
    wseam_torch_event event = history_event(pointer, bytes, device, native);
    wseam_torch_stack *stack = history_gather(WSEAM_TORCH_OF_ALL);
    pthread_mutex_lock(&history.lock);
    history_block *block = history_is_on() ? history_find(pointer) : NULL;
    if (history_is_on() && !block)
        block = history_note(&event); /* allocated before the history began */
    if (block) {
        block->freeing = true;
        history_unshare(block->freed);
        block->freed = history_share(stack);
        history_put(&block->event, WSEAM_TORCH_FREE_REQUESTED, stack ? stack : block->event.stack);
    }
    history_unshare(stack);
    pthread_mutex_unlock(&history.lock);
}

void wtorch_history_freed(const void *pointer)
{
    if (!history_is_on())
        return;
    pthread_mutex_lock(&history.lock);
    history_block *block = history_find(pointer);
    if (block && block->freeing) {
        history_put(&block->event, WSEAM_TORCH_FREE_COMPLETED, block->freed ? block->freed : block->event.stack);
        history_drop(pointer);
    }
    pthread_mutex_unlock(&history.lock);
}

void wtorch_history_refused(size_t bytes, int device, const void *native, uint64_t total, uint64_t left)
{
    wseam_torch_observer observer = atomic_load(&history.observer);
    if (history_is_on()) {
        wseam_torch_event event = history_event(NULL, bytes, device, native);
        wseam_torch_stack *stack = history_gather(WSEAM_TORCH_OF_ALLOCATIONS);
        event.address = left;
        pthread_mutex_lock(&history.lock);
        if (history_is_on())
            history_put(&event, WSEAM_TORCH_OOM, stack);
        history_unshare(stack);
        pthread_mutex_unlock(&history.lock);
    }
    if (observer)
        observer(device, bytes, total, left);
}

/* For the Python package --------------------------------------------------------------------------------------- */

/* Turns the history off in a forked process, whose parent may have held the lock. The memory is left as it is. */
static void history_in_child(void)
{
    pthread_mutex_init(&history.lock, NULL);
    atomic_store(&history.on, false);
    atomic_store(&history.observer, NULL);
    history.blocks = (wi_pointer_map){.entries = NULL};
    history.unused = NULL;
    memset(history.rings, 0, sizeof history.rings);
}

static void history_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, history_in_child);
}

void wseam_torch_history_begin(const wseam_torch_history *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, history_watch_forks);
    pthread_mutex_lock(&history.lock);
    if (!history.python.ready)
        history.python = options->python;
    history.skipped = options->skipped;
    history.entries = options->entries < SIZE_MAX / sizeof(wseam_torch_event) ? (size_t)options->entries
                                                                              : SIZE_MAX / sizeof(wseam_torch_event);
    for (int i = 0; i < WTORCH_DEVICES; i++)
        if (history.rings[i].count > 0)
            history_cut(&history.rings[i], options->clear ? 0 : history.entries);
    atomic_store(&history.context, options->context);
    atomic_store(&history.native, options->native);
    atomic_store_explicit(&history.on, true, memory_order_release);
    pthread_mutex_unlock(&history.lock);
    history_sweep_alone();
}

void wseam_torch_history_end(void)
{
    pthread_mutex_lock(&history.lock);
    atomic_store(&history.on, false);
    for (int i = 0; i < WTORCH_DEVICES; i++)
        history_cut(&history.rings[i], 0);
    history_forget_blocks();
    pthread_mutex_unlock(&history.lock);
    history_sweep_alone();
}

bool wseam_torch_history_on(void)
{
    return history_is_on();
}

size_t wseam_torch_history_read(int device, wseam_torch_event *out, size_t room)
{
    if (device < 0 || device >= WTORCH_DEVICES)
        return 0;
    pthread_mutex_lock(&history.lock);
    const history_ring *ring = &history.rings[device];
    size_t count = ring->count;
    for (size_t i = 0; i < count && count <= room; i++) {
        out[i] = *history_at(ring, i);
        history_share(out[i].stack);
    }
    pthread_mutex_unlock(&history.lock);
    return count;
}

bool wseam_torch_history_of(const void *pointer, wseam_torch_event *out)
{
    if (!history_is_on())
        return false;
    pthread_mutex_lock(&history.lock);
    const history_block *block = history_find(pointer);
    if (block) {
        *out = block->event;
        history_share(out->stack);
    }
    pthread_mutex_unlock(&history.lock);
    return block != NULL;
}

const wseam_torch_frames *wseam_torch_stack_frames(const wseam_torch_stack *stack)
{
    return &stack->told;
}

void wseam_torch_history_done(const wseam_torch_event *events, size_t count)
{
    pthread_mutex_lock(&history.lock);
    for (size_t i = 0; i < count; i++)
        history_unshare(events[i].stack);
    bool any = history.unused != NULL;
    pthread_mutex_unlock(&history.lock);
    if (any)
        history_sweep_alone();
}

void wseam_torch_history_snapshot(int device, uint64_t bytes)
{
    wseam_torch_event event = {.device = device, .bytes = bytes};
    if (!history_is_on() || device < 0 || device >= WTORCH_DEVICES)
        return;
    pthread_mutex_lock(&history.lock);
    if (history_is_on())
        history_put(&event, WSEAM_TORCH_SNAPSHOT, NULL);
    pthread_mutex_unlock(&history.lock);
}

void wseam_torch_observe(wseam_torch_observer observer)
{
    atomic_store(&history.observer, observer);
}
