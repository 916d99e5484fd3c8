/* The common budget of all processes under a `weir exec`, see docs/guide/exec.md.
 *
 * The processes map a file with the bytes that each process has. The lock on the file, and who is alive, are open file
 * description locks: the kernel takes them away with the last copy of the file's descriptor, at exit, at exec, when the
 * process is killed, and behind a fork when the child has ended as well. That is when CUDA's own descriptors go, and
 * the memory with them. Each change is one store into the process's own seat, so that no death leaves a sum half
 * made. */
#include "interpose/preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The file --------------------------------------------------------------------------------------------------------- */

enum {
    VERSION = 1,
    SEATS = 1024,
    ACCOUNTS = 17, /* the host, and devices */
    UUID = 16,
    THE_BOOK = 0, /* bytes of the file that stand for locks: the lock of the book, then a lock per seat */
    FIRST_SEAT = 1,
};

typedef struct seat {
    atomic_uint process;
    atomic_uint listens;  /* a thread answers */
    atomic_uint answered; /* number of the last call that was answered */
    char name[20];
    atomic_uint_fast64_t bytes[ACCOUNTS];
    atomic_uint_fast64_t wants[ACCOUNTS]; /* while it waits for others */
} seat;

typedef struct account {
    unsigned char uuid[UUID];
    uint64_t taken;
    uint64_t budget; /* 0: nobody has said it */
    uint64_t peak;
} account;

/* All zeros: an empty book. */
typedef struct book {
    uint32_t version;
    atomic_uint seats;          /* up to the last one that was ever taken */
    atomic_uint calls, answers; /* futexes */
    account accounts[ACCOUNTS]; /* the host's is the first one */
    seat seat[SEATS];
} book;

/* This process's. */
static struct {
    pthread_mutex_t lock; /* of its threads, around the lock of the file */
    atomic_int process;   /* which has joined; 0: none */
    int file;
    book *book;
    seat *mine;
    atomic_int account_of[WP_DEVICES], account_of_host; /* and 1; 0: not known yet */
    void (*give)(int ordinal, uint64_t bytes);
} tree = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

bool wp_tree_is(void)
{
    return wp_settings_of()->tree != NULL;
}

/* Locks ------------------------------------------------------------------------------------------------------------ */

static int lock_byte(int file, int command, short type, int byte)
{
    struct flock its = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do
        result = fcntl(file, command, &its);
    while (result != 0 && errno == EINTR);
    return result != 0 ? -1 : its.l_type != F_UNLCK;
}

static bool tree_enter(int file)
{
    return lock_byte(file, F_OFD_SETLKW, F_WRLCK, THE_BOOK) >= 0;
}

static void tree_leave(int file)
{
    (void)lock_byte(file, F_OFD_SETLK, F_UNLCK, THE_BOOK);
}

/* Of another process's; its own would not be seen. */
static bool lives(int number)
{
    return lock_byte(tree.file, F_OFD_GETLK, F_WRLCK, FIRST_SEAT + number) != 0;
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

/* Opens the file and locks it. Tries again when `weir exec` has removed the file, as it does when no process uses the
 * file. */
static int tree_open_file(const char *path)
{
    struct stat its;
    for (;;) {
        int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
        bool locked = file >= 0 && tree_enter(file) && fstat(file, &its) == 0;
        if (locked && its.st_nlink > 0 && (its.st_size >= (off_t)sizeof(book) || ftruncate(file, sizeof(book)) == 0))
            return file;
        int error = errno;
        if (file >= 0)
            close(file);
        if (!locked || its.st_nlink > 0) {
            errno = error;
            return -1;
        }
    }
}

/* Takes a free seat, with the lock held, and clears the figures of the seat's previous process. */
static seat *take_seat(int file, book *b)
{
    for (int i = 0; i < SEATS; i++) {
        if (lock_byte(file, F_OFD_SETLK, F_WRLCK, FIRST_SEAT + i) < 0)
            continue;
        seat *mine = &b->seat[i];
        memset(mine, 0, sizeof *mine);
        snprintf(mine->name, sizeof mine->name, "%s", program_invocation_short_name);
        atomic_store(&mine->process, (unsigned)getpid());
        if (i >= (int)atomic_load(&b->seats))
            atomic_store(&b->seats, (unsigned)i + 1);
        return mine;
    }
    return NULL;
}

static weir_status sit_down(int file, const char *path)
{
    book *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (b == MAP_FAILED)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    bool same = b->version == 0 || b->version == VERSION;
    seat *mine = same ? take_seat(file, b) : NULL;
    if (!mine) {
        munmap(b, sizeof *b);
        return weir_fail(WEIR_ERR_SYSTEM, same ? "%s: more than %d processes have memory" : "%s is another weir's",
                         path, SEATS);
    }
    b->version = VERSION;
    tree.book = b;
    tree.mine = mine;
    tree.file = file;
    tree.process = getpid();
    return WEIR_OK;
}

/* With the process's lock. */
static weir_status tree_join(void)
{
    const char *path = wp_settings_of()->tree;
    int file = tree_open_file(path);
    if (file < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s, where the processes under weir exec share their budget: %s", path,
                         strerror(errno));
    weir_status status = sit_down(file, path);
    tree_leave(file);
    if (status != WEIR_OK)
        close(file);
    return status;
}

/* A child behind a fork has its parent's file and memory, and CUDA works in it no more than in any. */
static bool is_forked(void)
{
    return tree.process != 0 && tree.process != getpid();
}

/* With the locks: a new one gets the budget that `weir exec` was given. */
static bool is_account(account *p, const unsigned char *uuid, const char *name)
{
    if (!p->taken) {
        memcpy(p->uuid, uuid, UUID);
        p->budget = wp_tree_budget_given(name);
        p->taken = 1;
    }
    return memcmp(p->uuid, uuid, UUID) == 0;
}

/* -1: there are more devices than accounts. */
static int tree_find_account(int ordinal, const unsigned char *uuid)
{
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    if (ordinal == WP_HOST)
        return is_account(&tree.book->accounts[0], uuid, "host") ? 0 : -1;
    for (int i = 1; i < ACCOUNTS; i++)
        if (is_account(&tree.book->accounts[i], uuid, name))
            return i;
    return -1;
}

/* With the process's lock, which it keeps, and takes that of the book besides; -1: it cannot. */
static int open_account(int ordinal)
{
    atomic_int *known = ordinal == WP_HOST ? &tree.account_of_host : &tree.account_of[ordinal];
    int at = atomic_load(known) - 1;
    unsigned char uuid[UUID] = {0};
    bool named = at >= 0 || ordinal == WP_HOST ||
                 (wp_real.cuDeviceGetUuid_v2 && wp_real.cuDeviceGetUuid_v2(uuid, ordinal) == CUDA_SUCCESS);
    if (!named || (!tree.process && tree_join() != WEIR_OK) || !tree_enter(tree.file))
        return -1;
    if (at < 0 && (at = tree_find_account(ordinal, uuid)) >= 0)
        atomic_store(known, at + 1);
    if (at < 0)
        tree_leave(tree.file);
    return at;
}

/* Enters the book at the device's account; leave_account leaves it. -1: it has not entered, as there is no tree, or this
 * process cannot be in it. */
static int enter_account(int ordinal)
{
    if (!wp_tree_is() || is_forked() || ordinal < WP_HOST || ordinal >= WP_DEVICES)
        return -1;
    pthread_mutex_lock(&tree.lock);
    int at = open_account(ordinal);
    if (at < 0)
        pthread_mutex_unlock(&tree.lock);
    return at;
}

static void leave_account(void)
{
    tree_leave(tree.file);
    pthread_mutex_unlock(&tree.lock);
}

weir_status wp_tree_join(int ordinal)
{
    if (!wp_tree_is())
        return WEIR_OK;
    (void)weir_fail(WEIR_ERR_SYSTEM, "the GPU has no place among the processes under weir exec");
    if (enter_account(ordinal) < 0)
        return WEIR_ERR_SYSTEM;
    leave_account();
    return WEIR_OK;
}

/* Counting --------------------------------------------------------------------------------------------------------- */

/* Finds the next other process that has memory of the account; NULL: no more. Called with the locks held. Clears the
 * bytes of processes that have ended. */
static seat *next_other(int at, int *number)
{
    int count = (int)atomic_load(&tree.book->seats);
    for (int i = *number; i < count; i++) {
        seat *s = &tree.book->seat[i];
        if (s == tree.mine || atomic_load(&s->bytes[at]) == 0)
            continue;
        if (lives(i)) {
            *number = i + 1;
            return s;
        }
        atomic_store(&s->bytes[at], 0);
    }
    return NULL;
}

static uint64_t count_others(int at)
{
    uint64_t sum = 0;
    int number = 0;
    for (const seat *s; (s = next_other(at, &number));)
        sum += atomic_load(&s->bytes[at]);
    return sum;
}

bool wp_tree_take(int ordinal, uint64_t bytes)
{
    if (!wp_tree_is())
        return true;
    int at = enter_account(ordinal);
    if (at < 0)
        return false;
    account *p = &tree.book->accounts[at];
    uint64_t all = count_others(at) + atomic_load(&tree.mine->bytes[at]);
    bool fits = p->budget == 0 || (all <= p->budget && bytes <= p->budget - all);
    if (fits) {
        atomic_fetch_add(&tree.mine->bytes[at], bytes);
        p->peak = wi_max(p->peak, all + bytes);
    }
    leave_account();
    return fits;
}

void wp_tree_give(int ordinal, uint64_t bytes)
{
    int at = enter_account(ordinal);
    if (at < 0)
        return;
    atomic_fetch_sub(&tree.mine->bytes[at], bytes);
    leave_account();
}

wp_tree_view wp_tree_look(int ordinal)
{
    wp_tree_view view = {.budget = UINT64_MAX};
    int at = enter_account(ordinal);
    if (at < 0)
        return view;
    const account *p = &tree.book->accounts[at];
    view.budget = p->budget ? p->budget : UINT64_MAX;
    view.peak = p->peak;
    view.mine = atomic_load(&tree.mine->bytes[at]);
    view.others = count_others(at);
    leave_account();
    return view;
}

void wp_tree_measured(int ordinal, uint64_t budget)
{
    int at = enter_account(ordinal);
    if (at < 0)
        return;
    account *p = &tree.book->accounts[at];
    p->budget = p->budget ? p->budget : budget;
    leave_account();
}

void wp_tree_say(int ordinal, char *text, size_t capacity)
{
    char size[24];
    const char *before = "; of the budget other processes have their parts: ";
    int at = enter_account(ordinal), number = 0;
    if (at < 0)
        return;
    for (const seat *s; (s = next_other(at, &number)); before = ", ") {
        size_t length = strlen(text);
        snprintf(text + length, capacity - length, "%s%.19s (%u) has %s", before, s->name, atomic_load(&s->process),
                 weir_size_format(atomic_load(&s->bytes[at]), size, sizeof size));
    }
    leave_account();
}

/* Asking ----------------------------------------------------------------------------------------------------------- */

enum { LONGEST_WAIT = 5 }; /* seconds, with a process that is stopped, or at work in the driver */

/* NULL: for as long as it takes. False: it is too late. */
static bool sleep_until_changed(atomic_uint *word, unsigned seen, const struct timespec *deadline)
{
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, deadline, NULL, FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != ETIMEDOUT;
}

static void tree_wake(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Whether anybody who has memory there, and listens, has not answered the call. */
static bool anybody_owes(int ordinal, unsigned call)
{
    int at = enter_account(ordinal), number = 0;
    bool owes = false;
    if (at < 0)
        return false;
    for (const seat *s; (s = next_other(at, &number));)
        owes |= atomic_load(&s->listens) && (int)(call - atomic_load(&s->answered)) > 0;
    leave_account();
    return owes;
}

/* Adds to the wants of this process while a thread waits, or takes the bytes away again; the wants of several threads
 * add up. The wants of a killed process go with its seat. */
static void tree_want(int ordinal, uint64_t bytes, bool more)
{
    int at = enter_account(ordinal);
    if (at < 0)
        return;
    if (more)
        atomic_fetch_add(&tree.mine->wants[at], bytes);
    else
        atomic_fetch_sub(&tree.mine->wants[at], bytes);
    leave_account();
}

bool wp_tree_ask(int ordinal, uint64_t bytes)
{
    if (wp_tree_look(ordinal).others == 0)
        return false;
    tree_want(ordinal, bytes, true);
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += LONGEST_WAIT;
    unsigned call = atomic_fetch_add(&tree.book->calls, 1) + 1;
    tree_wake(&tree.book->calls);
    for (;;) {
        unsigned seen = atomic_load(&tree.book->answers);
        if (!anybody_owes(ordinal, call) || !sleep_until_changed(&tree.book->answers, seen, &deadline))
            break;
    }
    tree_want(ordinal, bytes, false);
    return true;
}

/* Returns the bytes of a device that other processes wait for; 0: none, or the device is unknown to this process. */
static uint64_t tree_wanted(int ordinal)
{
    uint64_t sum = 0;
    int at = atomic_load(&tree.account_of[ordinal]) ? enter_account(ordinal) : -1;
    if (at < 0)
        return 0;
    for (int i = 0; i < (int)atomic_load(&tree.book->seats); i++) {
        uint64_t its = &tree.book->seat[i] == tree.mine ? 0 : atomic_load(&tree.book->seat[i].wants[at]);
        sum += its && lives(i) ? its : 0;
    }
    leave_account();
    return sum;
}

static void *tree_answer(void *user)
{
    (void)user;
    unsigned seen = atomic_load(&tree.mine->answered);
    for (;;) {
        (void)sleep_until_changed(&tree.book->calls, seen, NULL);
        if (atomic_load(&tree.book->calls) == seen)
            continue;
        seen = atomic_load(&tree.book->calls);
        for (int i = 0; i < WP_DEVICES; i++) {
            uint64_t bytes = tree_wanted(i);
            if (bytes)
                tree.give(i, bytes);
        }
        atomic_store(&tree.mine->answered, seen);
        atomic_fetch_add(&tree.book->answers, 1);
        tree_wake(&tree.book->answers);
    }
    return NULL;
}

/* The program's signals are for its own threads. */
void wp_tree_listen(void (*give)(int ordinal, uint64_t bytes))
{
    pthread_t thread;
    sigset_t all, before;
    if (tree.process != getpid() || tree.give) /* it is in no tree, or listens already */
        return;
    tree.give = give;
    /* From here on others wait for its answers, however late the thread begins. */
    atomic_store(&tree.mine->answered, atomic_load(&tree.book->calls));
    atomic_store(&tree.mine->listens, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, tree_answer, NULL) == 0)
        pthread_detach(thread);
    else
        atomic_store(&tree.mine->listens, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
