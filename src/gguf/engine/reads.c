/* reads.c: what llama.cpp reads of a model's file comes past the page cache. llama.cpp reads each tensor by fread, whose import slot leads
 * here; threads of a ring are ahead of it. Reads of other files, and of threads that load nothing, go on to fread. */
#include "wg.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>

#include "interpose/interpose.h"

static _Thread_local wt_ring *reads_here;

static size_t reads_on_fread(void *to, size_t size, size_t count, FILE *file)
{
    wt_ring *ring = reads_here;
    struct stat about;
    if (!ring || size == 0 || count > (SIZE_MAX >> 1) / size || fstat(fileno(file), &about) != 0 ||
        about.st_dev != ring->device || about.st_ino != ring->number)
        return fread(to, size, count, file);
    off_t at = ftello(file);
    size_t bytes = size * count;
    bool given = at >= 0 && wt_ring_read(ring, to, (uint64_t)at, bytes) && fseeko(file, (off_t)bytes, SEEK_CUR) == 0;
    return given ? count : fread(to, size, count, file);
}

/* Leads the library's calls here, once for each library, and for good: the library stays. */
static bool reads_lead(const wg_library *library)
{
    enum { LIBRARIES = 8 };
    static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        void *of;
        wi_interpose *slots; /* for good; NULL: its calls do not come here */
    } known[LIBRARIES];
    const wi_replacement call = {"fread", (void (*)(void))reads_on_fread, true};
    void *of = *(void *const *)&library->llama_model_load_from_file;
    Dl_info its;
    size_t i = 0;
    pthread_mutex_lock(&asking);
    while (i < LIBRARIES && known[i].of && known[i].of != of)
        i++;
    bool good = i < LIBRARIES && known[i].slots;
    if (i < LIBRARIES && !known[i].of) {
        wi_interpose *slots = NULL;
        good = dladdr(of, &its) != 0 && wi_interpose_open(its.dli_fname, &call, 1, &slots) == WEIR_OK &&
               wi_interpose_apply(slots) == WEIR_OK;
        known[i].of = of;
        known[i].slots = good ? slots : NULL;
        if (!good) {
            weir_log(WEIR_LOG_INFO, "gguf: llama.cpp reads through the page cache: %s", weir_detail());
            (void)wi_interpose_close(slots);
        }
    }
    pthread_mutex_unlock(&asking);
    return good;
}

bool wg_reads_begin(wt_ring *ring, const wg_library *library, const char *path)
{
    if (!reads_lead(library) || !wt_ring_begin(ring, path))
        return false;
    reads_here = ring;
    return true;
}

void wg_reads_end(wt_ring *ring)
{
    if (reads_here == ring && ring->buffers)
        weir_log(WEIR_LOG_DEBUG, "gguf: %llu of %llu bytes came past the page cache", (unsigned long long)ring->given,
                 (unsigned long long)ring->size);
    reads_here = NULL;
    wt_ring_end(ring);
}
