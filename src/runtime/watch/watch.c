/* The beginning and the end of watching: the socket, its thread, forks, exit. */
#include "runtime/watch/watch.h"
#include "base/values.h"
#include "base/system.h"
#include "base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE = 64 }; /* connections that wait */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool begun;
static char command[256];

/* What was laid down, to be removed by the process that did. */
static struct laid {
    pid_t process;
    char folder[WI_WATCH_PATH], name[32];
    dev_t device;
    ino_t inode;
} laid;

/* The end ---------------------------------------------------------------------------------------------------------- */

/* Another process may have the name by now, where several have the same number in namespaces of their own. */
static void remove_socket(void)
{
    struct stat found;
    int folder;
    if (laid.process != getpid() || wi_watch_folder_take(laid.folder, false, geteuid(), &folder) != WEIR_OK)
        return;
    if (fstatat(folder, laid.name, &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_dev == laid.device &&
        found.st_ino == laid.inode)
        unlinkat(folder, laid.name, 0);
    close(folder);
}

/* Keeps the detail, as the program's own functions may follow it at exit. */
static void at_exit(void)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    remove_socket();
    wi_detail_restore(&saved);
}

static void before_fork(void)
{
    wi_watch_before_fork();
}

static void in_parent(void)
{
    wi_watch_after_fork(false);
}

static void watch_in_child(void)
{
    wi_watch_after_fork(true);
}

/* The beginning ---------------------------------------------------------------------------------------------------- */

static void *watch_run(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "weir-watch");
    wi_watch_serve();
    remove_socket();
    return NULL;
}

static void watch_read_command(void)
{
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, command, sizeof command - 1) : 0;
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i + 1 < length; i++)
        if (command[i] == '\0')
            command[i] = ' ';
    wi_one_line(command);
}

/* The socket of a former process of this number is written over, that of a living one in another namespace is not. */
static bool is_answered(int folder, const char *name)
{
    struct sockaddr_un address;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    wi_watch_address(folder, name, &address);
    bool answered = file >= 0 && (connect(file, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN);
    if (file >= 0)
        close(file);
    return answered;
}

/* Listens under a name that nobody looks for, and takes the right one then: a socket PID.sock that nobody listens on is
 * always a dead one's. */
static weir_status lay(int file, int folder)
{
    char early[sizeof laid.name];
    struct sockaddr_un address;
    struct stat made;
    snprintf(laid.name, sizeof laid.name, "%ld.sock", (long)getpid());
    snprintf(early, sizeof early, "%ld.new", (long)getpid());
    if (is_answered(folder, laid.name))
        return weir_fail(WEIR_ERR_CONFLICT, "%s/%s is another process's", laid.folder, laid.name);
    wi_watch_address(folder, early, &address);
    (void)unlinkat(folder, early, 0);
    if (bind(file, (struct sockaddr *)&address, sizeof address) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s/%s: %s", laid.folder, early, strerror(errno));
    if (fchmodat(folder, early, S_IRUSR | S_IWUSR, 0) != 0 || listen(file, QUEUE) != 0 ||
        fstatat(folder, early, &made, AT_SYMLINK_NOFOLLOW) != 0 || renameat(folder, early, folder, laid.name) != 0) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "%s/%s: %s", laid.folder, early, strerror(errno));
        (void)unlinkat(folder, early, 0);
        return status;
    }
    laid.device = made.st_dev;
    laid.inode = made.st_ino;
    laid.process = getpid();
    return WEIR_OK;
}

static weir_status lay_somewhere(int file)
{
    weir_status status = WEIR_ERR_NOT_FOUND;
    for (int number = 0; number < WI_WATCH_FOLDERS && status != WEIR_OK && status != WEIR_ERR_CONFLICT; number++) {
        int folder;
        status = wi_watch_folder_open(number, true, laid.folder, &folder);
        if (status != WEIR_OK)
            continue;
        status = lay(file, folder);
        close(folder);
    }
    return status;
}

static weir_status start_thread(void)
{
    int failure = wi_thread_start(NULL, watch_run, NULL);
    return failure == 0 ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no thread: %s", strerror(failure));
}

static weir_status watch_begin(void)
{
    watch_read_command();
    if (!wi_watch_prepare(command))
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory");
    pthread_atfork(before_fork, in_parent, watch_in_child);
    int file = wi_watch_open();
    if (file < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "no socket: %s", strerror(errno));
    weir_status status = lay_somewhere(file);
    if (status == WEIR_OK && (status = start_thread()) != WEIR_OK)
        remove_socket();
    if (status == WEIR_OK)
        atexit(at_exit);
    else
        wi_watch_close();
    return status;
}

void wi_watch_start(void)
{
    wi_saved_detail saved;
    if (wi_alone || !wi_option_watch())
        return;
    wi_detail_save(&saved);
    pthread_mutex_lock(&lock);
    weir_status status = begun ? WEIR_OK : watch_begin();
    begun = true;
    pthread_mutex_unlock(&lock);
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "this process cannot be watched: %s", weir_detail());
    wi_detail_restore(&saved);
}
