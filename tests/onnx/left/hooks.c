/* malloc and its family, mmap and dlclose, as the program and its libraries call them. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include "left.h"

/* glibc's own, by the names that it keeps for those who replace them. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);

extern const char __ehdr_start[] __attribute__((visibility("hidden"))); /* by the linker: this library */
extern const char _end[] __attribute__((visibility("hidden")));

static atomic_bool ready;
/* Of a model that never allocates, as what allocates is what is hooked here. */
static _Thread_local bool aside __attribute__((tls_model("initial-exec")));
static int (*libc_dlclose)(void *);

bool left_aside(bool own)
{
    bool was = aside;
    aside = own;
    return was;
}

/* In a child there is nobody to be told. */
static void in_child(void)
{
    atomic_store(&ready, false);
}

__attribute__((constructor)) static void begin(void)
{
    *(void **)&libc_dlclose = dlsym(RTLD_NEXT, "dlclose");
    if (libc_dlclose && left_tables_make() && pthread_atfork(NULL, NULL, in_child) == 0)
        atomic_store(&ready, true);
}

/* ---- who calls ----------------------------------------------------------------------------------------------------------- */

typedef struct walk {
    int depth;
    uintptr_t frames[LEFT_FRAMES];
} walk;

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *user)
{
    walk *w = user;
    uintptr_t at = _Unwind_GetIP(context);
    if (at >= (uintptr_t)__ehdr_start && at < (uintptr_t)_end)
        return _URC_NO_REASON;
    if (at == 0 || w->depth == LEFT_FRAMES)
        return _URC_END_OF_STACK;
    w->frames[w->depth++] = at;
    return _URC_NO_REASON;
}

static left_stack *stack_here(left_kind kind, const void *caller)
{
    walk w = {0};
    _Unwind_Backtrace(step, &w);
    if (w.depth == 0) /* whose code has no table for walking up */
        w.frames[w.depth++] = (uintptr_t)caller;
    return left_stack_of(kind, w.frames, w.depth);
}

static void note(left_kind kind, const void *p, size_t bytes, const void *caller)
{
    if (!p || aside || !atomic_load(&ready))
        return;
    int error = errno;
    aside = true;
    left_put((uintptr_t)p, bytes, stack_here(kind, caller));
    aside = false;
    errno = error;
}

static left_stack *forget(const void *p, size_t *bytes)
{
    *bytes = 0;
    return p && atomic_load(&ready) ? left_take((uintptr_t)p, bytes) : NULL;
}

/* ---- the heap ------------------------------------------------------------------------------------------------------------ */

#define CALLER __builtin_return_address(0)

/* The C library's headers have other names for the same parameters. NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

void *malloc(size_t size)
{
    void *p = __libc_malloc(size);
    note(LEFT_HEAP, p, size, CALLER);
    return p;
}

void *calloc(size_t count, size_t size)
{
    void *p = __libc_calloc(count, size);
    note(LEFT_HEAP, p, count * size, CALLER);
    return p;
}

void free(void *p)
{
    size_t bytes;
    forget(p, &bytes);
    __libc_free(p);
}

static void *again(void *p, size_t size, const void *caller)
{
    size_t bytes;
    left_stack *stack = forget(p, &bytes);
    void *now = __libc_realloc(p, size);
    if (!now && size && stack)
        left_put((uintptr_t)p, bytes, stack);
    note(LEFT_HEAP, now, size, caller);
    return now;
}

void *realloc(void *p, size_t size)
{
    return again(p, size, CALLER);
}

void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return again(p, bytes, CALLER);
}

static void *aligned(size_t alignment, size_t size, const void *caller)
{
    void *p = __libc_memalign(alignment, size);
    note(LEFT_HEAP, p, size, caller);
    return p;
}

void *memalign(size_t alignment, size_t size)
{
    return aligned(alignment, size, CALLER);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return aligned(alignment, size, CALLER);
}

void *valloc(size_t size)
{
    return aligned((size_t)sysconf(_SC_PAGESIZE), size, CALLER);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) || alignment == 0 || (alignment & (alignment - 1)))
        return EINVAL;
    int error = errno;
    void *p = aligned(alignment, size, CALLER);
    errno = error;
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

/* ---- mappings ------------------------------------------------------------------------------------------------------------ */

/* Only what is written to can be left resident. What was at that place is no more. glibc's own do not come by here. */
void *mmap(void *wanted, size_t size, int protection, int flags, int fd, off_t offset)
{
    size_t before;
    void *p = (void *)syscall(SYS_mmap, wanted, size, protection, flags, fd, offset);
    if (p == MAP_FAILED)
        return p;
    forget(p, &before);
    if ((flags & MAP_ANONYMOUS) && (protection & PROT_WRITE))
        note(LEFT_MAPPING, p, size, CALLER);
    return p;
}

void *mmap64(void *wanted, size_t size, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));

/* Of a mapping that goes in parts the first part may go, and then what is left of it. */
int munmap(void *p, size_t size)
{
    size_t bytes;
    left_stack *stack = forget(p, &bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), gone = (size + page - 1) / page * page;
    int status = (int)syscall(SYS_munmap, p, size);
    if (stack && status)
        left_put((uintptr_t)p, bytes, stack);
    else if (stack && bytes > gone)
        left_put((uintptr_t)p + gone, bytes - gone, stack);
    return status;
}

/* What a library has left is still there when the library is not. */
int dlclose(void *library)
{
    if (atomic_load(&ready))
        left_libraries_look();
    return libc_dlclose ? libc_dlclose(library) : -1;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
