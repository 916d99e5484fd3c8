/* The digest of a model's contents. */
#include "factory/predict/forecast.h"

#include "base/stamp.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE = 8 << 10, SAMPLES = 8, MOST_FILES = 64 }; /* they take 50 us, of a first load */

const wi_digest wi_digest_none = {UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b)};

static uint64_t mixed(uint64_t word)
{
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

void wi_digest_add(wi_digest *to, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t left = length; left > 0;) {
        uint64_t word = 0;
        size_t step = left < sizeof word ? left : sizeof word;
        memcpy(&word, at, step);
        to->high = mixed(to->high ^ word);
        to->low = mixed(to->low + word * UINT64_C(0x9e3779b97f4a7c15) + step);
        at += step;
        left -= step;
    }
    to->high = mixed(to->high + length);
}

/* Short reads are of a file that changes. */
static bool add_sample(int file, off_t at, size_t bytes, unsigned char *window, wi_digest *out)
{
    ssize_t got = pread(file, window, bytes, at);
    if (got != (ssize_t)bytes)
        return false;
    wi_digest_add(out, window, bytes);
    return true;
}

static bool predict_contents_add_file(int file, uint64_t size, wi_digest *out)
{
    unsigned char *window = malloc(SAMPLE);
    bool good = window != NULL;
    wi_digest_add(out, &size, sizeof size);
    uint64_t samples = size <= (uint64_t)SAMPLES * SAMPLE ? (size + SAMPLE - 1) / SAMPLE : SAMPLES;
    for (uint64_t i = 0; good && i < samples; i++) {
        /* The last one ends with the file. */
        uint64_t at = size <= SAMPLE ? 0 : samples > 1 ? (size - SAMPLE) / (samples - 1) * i : 0;
        at = i > 0 && i + 1 == samples ? size - SAMPLE : at;
        good = add_sample(file, (off_t)at, size < SAMPLE ? (size_t)size : (size_t)SAMPLE, window, out);
    }
    free(window);
    return good;
}

static int predict_contents_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool add_at(int folder, const char *name, wi_digest *out)
{
    struct stat about;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    bool good = fstat(file, &about) == 0;
    if (good && S_ISREG(about.st_mode)) {
        wi_digest_text(out, name);
        good = predict_contents_add_file(file, (uint64_t)about.st_size, out);
    }
    close(file);
    return good;
}

static bool predict_contents_add_folder(const char *path, wi_digest *out)
{
    struct dirent **names = NULL;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = folder >= 0 ? scandir(path, &names, NULL, predict_contents_by_name) : -1;
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        if (good && i < MOST_FILES && names[i]->d_name[0] != '.')
            good = add_at(folder, names[i]->d_name, out);
        free(names[i]);
    }
    free(names);
    if (folder >= 0)
        close(folder);
    return good;
}

/* GenAI's model is known by its file as well as by its folder. */
static bool stands_for_its_folder(const char *path, const char *name)
{
    size_t length = strlen(path), part = strlen(name);
    return length > part && path[length - part - 1] == '/' && strcmp(path + length - part, name) == 0;
}

/* ---- files that were read -------------------------------------------------------------------------------------------- */

enum { KNOWN_FILES = 16 };

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    wi_stamp stamp; /* zeros: there is none */
    wi_digest digest;
} known_files[KNOWN_FILES]; /* guarded by the lock, as the next index */
static size_t known_next;

static bool recall_file(const wi_stamp *stamp, wi_digest *out)
{
    bool found = false;
    pthread_mutex_lock(&known_lock);
    for (size_t i = 0; i < KNOWN_FILES && !found; i++) {
        found = wi_stamp_same(&known_files[i].stamp, stamp);
        if (found)
            *out = known_files[i].digest;
    }
    pthread_mutex_unlock(&known_lock);
    return found;
}

static void remember_file(const wi_stamp *stamp, const wi_digest *digest)
{
    pthread_mutex_lock(&known_lock);
    size_t index = known_next++ % KNOWN_FILES;
    known_files[index].stamp = *stamp;
    known_files[index].digest = *digest;
    pthread_mutex_unlock(&known_lock);
}

static bool predict_contents_read_file(const char *path, wi_digest *out)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    wi_stamp stamp = good ? wi_stamp_of(&about) : (wi_stamp){0};
    good = good && predict_contents_add_file(file, (uint64_t)about.st_size, out);
    if (file >= 0)
        close(file);
    if (good && stamp.settled)
        remember_file(&stamp, out);
    return good;
}

bool wi_contents(const char *path, wi_digest *out)
{
    static const char genai[] = "genai_config.json";
    struct stat about;
    *out = wi_digest_none;
    if (stands_for_its_folder(path, genai)) {
        char *folder = strndup(path, strlen(path) - sizeof genai + 1);
        bool good = folder && predict_contents_add_folder(folder, out);
        free(folder);
        return good;
    }
    if (stat(path, &about) != 0)
        return false;
    if (S_ISDIR(about.st_mode))
        return predict_contents_add_folder(path, out);
    const wi_stamp stamp = wi_stamp_of(&about);
    return recall_file(&stamp, out) || predict_contents_read_file(path, out);
}
