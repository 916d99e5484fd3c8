/* Streams of frameworks, as weir knows them; see places.h.
 *
 * The table has each stream once, and belongs to the lock. A thread has copies of the entries that it used last, and
 * needs no lock for those; a copy is good while the epoch is the one in which it was made. */
#include "seams/places.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- CUDA's driver, as far as seams ask it ----------------------------------------------------------------------- */

enum { SUCCESS = 0, CAPTURE_IMPLICIT = 906, NOT_CAPTURED = 0, CUDA_12 = 12000 };

typedef int get_proc_fn(const char *name, void **function, int version, uint64_t flags, int *found);
typedef int is_capturing_fn(void *stream, int *status);
typedef int get_id_fn(void *stream, unsigned long long *id);
typedef int total_fn(size_t *bytes, int device);

static struct {
    is_capturing_fn *is_capturing;
    get_id_fn *get_id;
    total_fn *total;
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* It is never closed: weir has it open as well, and it keeps threads of its own. */
static void driver_find_all(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *functions[3] = {NULL, NULL, NULL};
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    get_proc_fn *get = NULL;
    memcpy(&get, &symbol, sizeof get);
    if (!get || get("cuStreamIsCapturing", &functions[0], CUDA_12, 0, NULL) != SUCCESS ||
        get("cuStreamGetId", &functions[1], CUDA_12, 0, NULL) != SUCCESS ||
        get("cuDeviceTotalMem", &functions[2], CUDA_12, 0, NULL) != SUCCESS)
        return;
    memcpy(&driver.is_capturing, &functions[0], sizeof driver.is_capturing);
    memcpy(&driver.get_id, &functions[1], sizeof driver.get_id);
    memcpy(&driver.total, &functions[2], sizeof driver.total);
}

uint64_t wseam_driver_total(int ordinal)
{
    size_t bytes = 0;
    pthread_once(&once, driver_find_all);
    return driver.total && driver.total(&bytes, ordinal) == SUCCESS ? bytes
                                                                    : 0; /* CUDA's handle of a device is its ordinal */
}

wseam_stream_look wseam_driver_look(void *native, uint64_t *id)
{
    int capture = NOT_CAPTURED;
    unsigned long long found = 0;
    pthread_once(&once, driver_find_all);
    if (!driver.is_capturing || !driver.get_id)
        return WSEAM_STREAM_UNKNOWN;
    int result = driver.is_capturing(native, &capture);
    if (result == CAPTURE_IMPLICIT || (result == SUCCESS && capture != NOT_CAPTURED))
        return WSEAM_STREAM_CAPTURED;
    if (result != SUCCESS || driver.get_id(native, &found) != SUCCESS)
        return WSEAM_STREAM_UNKNOWN;
    *id = found;
    return WSEAM_STREAM_KNOWN;
}

enum { LEGACY = 1, PER_THREAD = 2, COPIES = 4, MORE = 32 };

/* The thread of an entry: of none for streams that all threads share. */
typedef struct thread_mark {
    atomic_uint users; /* references: by the thread and by its entries */
    atomic_bool ended;
} thread_mark;

typedef struct entry {
    weir_runtime *runtime; /* NULL: it is free */
    void *native;
    uint64_t id; /* CUDA's, which tells it from an earlier stream with this handle; 0: of a default stream */
    thread_mark *thread;
    weir_stream stream;
    unsigned registered; /* so many times */
} entry;

typedef struct copy {
    const weir_runtime *runtime;
    void *native;
    uint64_t id, epoch;
    weir_stream stream;
} copy;

static struct {
    pthread_mutex_t lock;
    entry *entries;
    size_t count;
    atomic_uint_fast64_t epoch; /* from 1, so that a copy that was never made is not good */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoch = 1};

static _Thread_local copy copies[COPIES];

/* Threads ---------------------------------------------------------------------------------------------------------- */

static pthread_key_t mark_key;
static pthread_once_t mark_once = PTHREAD_ONCE_INIT;
static bool marks_work;

static void leave_mark(thread_mark *mark)
{
    if (mark && atomic_fetch_sub(&mark->users, 1) == 1)
        free(mark);
}

/* Does not call weir at a thread's end: the next caller that asks for a new stream gives up the ended thread's
 * streams. */
static void thread_ends(void *mark)
{
    atomic_store(&((thread_mark *)mark)->ended, true);
    leave_mark(mark);
}

static void begin_marks(void)
{
    marks_work = pthread_key_create(&mark_key, thread_ends) == 0;
}

static thread_mark *own_mark(void)
{
    pthread_once(&mark_once, begin_marks);
    thread_mark *mark = marks_work ? pthread_getspecific(mark_key) : NULL;
    if (mark || !marks_work || !(mark = calloc(1, sizeof *mark)))
        return mark;
    atomic_store(&mark->users, 1);
    if (pthread_setspecific(mark_key, mark) == 0)
        return mark;
    free(mark);
    return NULL;
}

/* The table -------------------------------------------------------------------------------------------------------- */

/* The lock is held. NULL: it is not known. */
static entry *places_find(const weir_runtime *runtime, const void *native, const thread_mark *thread)
{
    for (size_t i = 0; i < known.count; i++) {
        entry *e = &known.entries[i];
        if (e->runtime == runtime && e->native == native && e->thread == thread)
            return e;
    }
    return NULL;
}

/* The lock is held. NULL: no memory. */
static entry *places_free_entry(void)
{
    entry *found = places_find(NULL, NULL, NULL);
    if (found)
        return found;
    entry *more = realloc(known.entries, (known.count + MORE) * sizeof *more);
    if (!more)
        return NULL;
    memset(more + known.count, 0, MORE * sizeof *more);
    known.entries = more;
    known.count += MORE;
    return more + known.count - MORE;
}

/* The lock is held. */
static weir_status places_give_up(entry *e)
{
    weir_status status = WEIR_OK;
    for (; e->registered > 0 && status == WEIR_OK; e->registered--)
        status = weir_stream_unregister(e->stream);
    leave_mark(e->thread);
    *e = (entry){0};
    return status;
}

/* The lock is held. What weir has recorded on a thread's stream is all that is waited for. */
static void give_up_ended(void)
{
    for (size_t i = 0; i < known.count; i++) {
        entry *e = &known.entries[i];
        if (e->thread && atomic_load(&e->thread->ended) && places_give_up(e) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "the stream of a thread that has ended stays known to weir: %s", weir_detail());
    }
}

static weir_status tell_weir(weir_runtime *runtime, void *native, weir_stream *out)
{
    if ((uintptr_t)native > PER_THREAD)
        return weir_stream_register(runtime, native, out);
    return weir_stream_default(
        runtime, (uintptr_t)native == LEGACY ? WEIR_DEFAULT_STREAM_LEGACY : WEIR_DEFAULT_STREAM_PER_THREAD, out);
}

/* The lock is held. A stream that was known already counts once more. weir itself notices that an earlier stream with
 * the same handle is gone. */
static weir_status places_enter(entry *e, const entry *wanted)
{
    weir_stream stream;
    weir_status status = tell_weir(wanted->runtime, wanted->native, &stream);
    if (status != WEIR_OK)
        return status;
    if (e->runtime && e->stream.id == stream.id) {
        e->registered++;
        e->id = wanted->id;
        return WEIR_OK;
    }
    if (!e->runtime && wanted->thread)
        atomic_fetch_add(&wanted->thread->users, 1);
    *e = *wanted;
    e->stream = stream;
    e->registered = 1;
    return WEIR_OK;
}

static weir_status places_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for what is known of a stream");
}

/* The lock is held. `trusted`: the handle is taken for the stream that it meant before. */
static weir_status find_or_enter(const entry *wanted, bool trusted, weir_stream *out)
{
    entry *e = places_find(wanted->runtime, wanted->native, wanted->thread);
    weir_status status = WEIR_OK;
    if (!e || (!trusted && (e->id != wanted->id || wanted->id == 0))) {
        give_up_ended();
        e = e ? e : places_free_entry();
        status = e ? places_enter(e, wanted) : places_no_memory();
    }
    if (status == WEIR_OK)
        *out = e->stream;
    return status;
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

static copy *places_copy_of(const void *native)
{
    uintptr_t bits = (uintptr_t)native;
    return &copies[(bits >> 4 ^ bits >> 12 ^ bits) % COPIES];
}

/* The long way. */
static weir_status places_ask(const entry *wanted, wseam_stream_look look, weir_stream *out)
{
    bool is_default = (uintptr_t)wanted->native <= PER_THREAD;
    uint64_t epoch = atomic_load(&known.epoch);
    pthread_mutex_lock(&known.lock);
    weir_status status = find_or_enter(wanted, is_default || look == WSEAM_STREAM_CAPTURED, out);
    pthread_mutex_unlock(&known.lock);
    if (status == WEIR_OK && (is_default || look == WSEAM_STREAM_KNOWN))
        *places_copy_of(wanted->native) = (copy){wanted->runtime, wanted->native, wanted->id, epoch, *out};
    return status;
}

/* The thread's copy of that stream; NULL: it has none. */
static const copy *own_copy(const weir_runtime *runtime, const void *native)
{
    const copy *c = places_copy_of(native);
    bool good = c->runtime == runtime && c->native == native &&
                c->epoch == atomic_load_explicit(&known.epoch, memory_order_acquire);
    return good ? c : NULL;
}

weir_status wseam_place_of(weir_client *client, void *native, weir_stream *out)
{
    entry wanted = {.runtime = weir_client_runtime(client), .native = native ? native : (void *)LEGACY};
    wseam_stream_look look = WSEAM_STREAM_KNOWN;
    *out = WEIR_STREAM_HOST;
    if (!wanted.runtime)
        return weir_fail(WEIR_ERR_INVALID, "a stream was asked for without a client");
    const copy *c = own_copy(wanted.runtime, wanted.native);
    if ((uintptr_t)wanted.native > PER_THREAD)
        look = wseam_driver_look(wanted.native, &wanted.id);
    if (c && (look == WSEAM_STREAM_CAPTURED || (look == WSEAM_STREAM_KNOWN && c->id == wanted.id))) {
        *out = c->stream;
        return WEIR_OK;
    }
    if ((uintptr_t)wanted.native == PER_THREAD && !(wanted.thread = own_mark()))
        return places_no_memory();
    return places_ask(&wanted, look, out);
}

weir_status wseam_place_or_host(weir_client *client, void *native, weir_stream *out)
{
    uint64_t ignored;
    weir_status status = wseam_place_of(client, native, out);
    bool captured = status == WEIR_ERR_STREAM_MISUSE && (uintptr_t)native > PER_THREAD &&
                    wseam_driver_look(native, &ignored) == WSEAM_STREAM_CAPTURED;
    return captured ? WEIR_OK : status;
}

bool wseam_place_was(const weir_client *client, const void *native, weir_stream stream)
{
    const copy *c = own_copy(weir_client_runtime(client), native ? native : (const void *)LEGACY);
    return c && c->stream.id == stream.id;
}

weir_status wseam_places_forget(weir_runtime *runtime)
{
    weir_status first = WEIR_OK;
    pthread_mutex_lock(&known.lock);
    atomic_fetch_add(&known.epoch, 1);
    for (size_t i = 0; i < known.count; i++) {
        weir_status status = known.entries[i].runtime == runtime ? places_give_up(&known.entries[i]) : WEIR_OK;
        first = first == WEIR_OK ? status : first;
    }
    pthread_mutex_unlock(&known.lock);
    return first;
}

void wseam_places_end(const void *native)
{
    if ((uintptr_t)native <= PER_THREAD)
        return;
    pthread_mutex_lock(&known.lock);
    atomic_fetch_add(&known.epoch, 1);
    for (size_t i = 0; i < known.count; i++)
        if (known.entries[i].runtime && known.entries[i].native == native &&
            places_give_up(&known.entries[i]) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "a stream that ends stays known to weir: %s", weir_detail());
    pthread_mutex_unlock(&known.lock);
}

size_t wseam_places_count(void)
{
    size_t count = 0;
    pthread_mutex_lock(&known.lock);
    for (size_t i = 0; i < known.count; i++)
        count += known.entries[i].runtime != NULL;
    pthread_mutex_unlock(&known.lock);
    return count;
}
