/* The libraries that a library lacks, found without opening it (foresee.h). The order is the dynamic linker's: what is
 * loaded already, DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, its cache, its own directories. Opening would be the surer
 * test, but CUDA's libraries alone are gigabytes.
 *
 * Each choice of an engine asks, and a search takes some milliseconds: what was found is given again while nothing
 * has changed that it rests on. */
#include "foresee.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKERS_CACHE "/etc/ld.so.cache"

enum { SEEN_MOST = 256, NAME_MOST = 128, PATH_MOST = 1024 };

typedef struct mapped {
    const char *bytes;
    size_t size;
} mapped;

typedef struct search {
    char seen[SEEN_MOST][NAME_MOST];
    size_t seen_count;
    onnx_seen rests_on;
    mapped cache;
    char *given,
        *usual; /* the dynamic linker's own lists of folders: LD_LIBRARY_PATH's as it was at the start, the system's */
    char *text;
    size_t capacity;
    int missing;
} search;

static bool needs_map_file(const char *path, mapped *out)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *out = (mapped){NULL, 0};
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED)
            *out = (mapped){bytes, (size_t)about.st_size};
    }
    if (fd >= 0)
        close(fd);
    return out->bytes != NULL;
}

static void needs_unmap(mapped *it)
{
    if (it->bytes)
        munmap((void *)it->bytes, it->size);
    it->bytes = NULL;
}

/* ---- a library's dynamic section --------------------------------------------------------------------------------- */

typedef struct dynamic {
    mapped file;
    const ElfW(Dyn) * entries;
    size_t count, texts; /* where its texts begin */
} dynamic;

static bool needs_inside(const mapped *file, uint64_t at, uint64_t bytes)
{
    return at <= file->size && bytes <= file->size - at;
}

/* Its text at that place; NULL if it leaves the file. */
static const char *needs_text_at(const mapped *file, uint64_t at)
{
    return at < file->size && memchr(file->bytes + at, 0, file->size - at) ? file->bytes + at : NULL;
}

/* Where an address of the loaded library lies in the file. */
static size_t in_file(const mapped *file, const ElfW(Ehdr) * header, uint64_t address)
{
    const ElfW(Phdr) *part = (const void *)(file->bytes + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && address >= part[i].p_vaddr && address - part[i].p_vaddr < part[i].p_filesz)
            return (size_t)(address - part[i].p_vaddr + part[i].p_offset);
    return SIZE_MAX;
}

static uint64_t needs_value_of(const dynamic *it, int64_t tag)
{
    for (size_t i = 0; i < it->count && it->entries[i].d_tag != DT_NULL; i++)
        if (it->entries[i].d_tag == tag)
            return it->entries[i].d_un.d_val;
    return UINT64_MAX;
}

static bool read_dynamic(dynamic *it)
{
    const mapped *file = &it->file;
    const ElfW(Ehdr) *header = (const void *)file->bytes;
    const ElfW(Ehdr) *own = (const void *)getauxval(AT_SYSINFO_EHDR);
    if (file->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        (own && header->e_machine != own->e_machine) || header->e_phentsize != sizeof(ElfW(Phdr)) ||
        header->e_phoff % sizeof(void *) != 0 ||
        !needs_inside(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(ElfW(Phdr))))
        return false;
    const ElfW(Phdr) *part = (const void *)(file->bytes + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_DYNAMIC && part[i].p_offset % sizeof(void *) == 0 &&
            needs_inside(file, part[i].p_offset, part[i].p_filesz)) {
            it->entries = (const void *)(file->bytes + part[i].p_offset);
            it->count = part[i].p_filesz / sizeof *it->entries;
        }
    it->texts = it->entries ? in_file(file, header, needs_value_of(it, DT_STRTAB)) : SIZE_MAX;
    return it->texts < file->size;
}

static bool needs_open_library(const char *path, dynamic *it)
{
    *it = (dynamic){0};
    if (!needs_map_file(path, &it->file))
        return false;
    if (read_dynamic(it))
        return true;
    needs_unmap(&it->file);
    return false;
}

/* ---- where a name is looked for ---------------------------------------------------------------------------------- */

/* What to do with a place where the name may be; true ends the search. */
typedef bool (*visit_fn)(const char *path, void *user);

static bool in_list(const char *list, const char *origin, const char *name, visit_fn visit, void *user)
{
    char path[PATH_MOST];
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        static const char *const words[] = {"$ORIGIN", "${ORIGIN}"};
        const char *front = "", *rest = list;
        for (size_t i = 0; i < 2; i++)
            if (strncmp(list, words[i], strlen(words[i])) == 0) {
                front = origin;
                rest = list + strlen(words[i]);
            }
        int tail = (int)(list + length - rest);
        if (length && snprintf(path, sizeof path, "%s%.*s/%s", front, tail, rest, name) < (int)sizeof path &&
            visit(path, user))
            return true;
        list += length + (list[length] != 0);
    }
    return false;
}

/* glibc's /etc/ld.so.cache: a header of 48 bytes, entries of 24, texts by their place in the file. */
static bool in_cache(const mapped *cache, const char *name, bool any_version, visit_fn visit, void *user)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    enum { HEADER = 48, ENTRY = 24 };
    uint32_t count, key, value;
    size_t length = strlen(name);
    if (!cache->bytes || cache->size < HEADER || memcmp(cache->bytes, magic, sizeof magic - 1) != 0)
        return false;
    memcpy(&count, cache->bytes + sizeof magic - 1, sizeof count);
    for (uint64_t i = 0; i < count && needs_inside(cache, HEADER + i * ENTRY, ENTRY); i++) {
        memcpy(&key, cache->bytes + HEADER + i * ENTRY + 4, sizeof key);
        memcpy(&value, cache->bytes + HEADER + i * ENTRY + 8, sizeof value);
        const char *soname = needs_text_at(cache, key), *path = needs_text_at(cache, value);
        if (soname && path && strncmp(soname, name, length) == 0 && (any_version || !soname[length]) &&
            visit(path, user))
            return true;
    }
    return false;
}

static bool is_usual(const char *folder)
{
    return strncmp(folder, "/lib", 4) == 0 || strncmp(folder, "/usr/lib", 8) == 0;
}

/* "A:B" of the folders from `first` up to `end`; NULL without host memory. */
static char *needs_join(const Dl_serinfo *info, unsigned first, unsigned end)
{
    size_t bytes = 1, at = 0;
    for (unsigned i = first; i < end; i++)
        bytes += strlen(info->dls_serpath[i].dls_name) + 1;
    char *list = calloc(1, bytes);
    for (unsigned i = first; list && i < end; i++)
        at += (size_t)snprintf(list + at, bytes - at, "%s%s", i > first ? ":" : "", info->dls_serpath[i].dls_name);
    return list;
}

/* The dynamic linker read LD_LIBRARY_PATH when the program began, and does not heed what became of it since: so it is
 * asked. The C library has no folders of its own to look in, so that the answer is what holds for all; the system's
 * come last. */
static bool ask_linker(search *s)
{
    Dl_serinfo size, *info = NULL;
    void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (handle && dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) == 0 && (info = calloc(1, size.dls_size))) {
        *info = size;
        unsigned end = dlinfo(handle, RTLD_DI_SERINFO, info) == 0 ? info->dls_cnt : 0, usual = end;
        while (usual > 0 && is_usual(info->dls_serpath[usual - 1].dls_name))
            usual--;
        s->given = needs_join(info, 0, usual);
        s->usual = needs_join(info, usual, end);
    }
    free(info);
    if (handle)
        dlclose(handle);
    else
        (void)dlerror();
    return s->given && s->usual;
}

static search *begin_search(void)
{
    search *s = calloc(1, sizeof *s);
    if (s && !ask_linker(s)) {
        free(s->given);
        free(s->usual);
        free(s);
        return NULL;
    }
    if (!s)
        return NULL;
    onnx_seen_begin(&s->rests_on);
    onnx_seen_note(&s->rests_on, LINKERS_CACHE);
    (void)needs_map_file(LINKERS_CACHE, &s->cache);
    return s;
}

static void end_search(search *s)
{
    onnx_seen_end(&s->rests_on);
    needs_unmap(&s->cache);
    free(s->given);
    free(s->usual);
    free(s);
}

/* The lists of folders, in order, that hold for what `it` needs. */
static bool everywhere(const search *s, const dynamic *it, const char *origin, const char *name, visit_fn visit,
                       void *user)
{
    uint64_t runpath = needs_value_of(it, DT_RUNPATH), rpath = needs_value_of(it, DT_RPATH);
    const char *before =
        runpath == UINT64_MAX && rpath != UINT64_MAX ? needs_text_at(&it->file, it->texts + rpath) : NULL;
    const char *behind = runpath != UINT64_MAX ? needs_text_at(&it->file, it->texts + runpath) : NULL;
    return in_list(before, origin, name, visit, user) || in_list(s->given, origin, name, visit, user) ||
           in_list(behind, origin, name, visit, user) || in_cache(&s->cache, name, false, visit, user) ||
           in_list(s->usual, origin, name, visit, user);
}

/* ---- what is found instead --------------------------------------------------------------------------------------- */

typedef struct others {
    search *s;
    const char *stem; /* "libnvinfer.so." */
    char text[256];
} others;

static bool note_other(const char *path, void *user)
{
    others *o = user;
    const char *name = strrchr(path, '/');
    size_t used = strlen(o->text);
    name = name ? name + 1 : path;
    if (!strstr(o->text, name) && used < sizeof o->text)
        snprintf(o->text + used, sizeof o->text - used, "%s%s", used ? ", " : "", name);
    return false;
}

/* `path` is FOLDER/STEM: every file of the folder that begins so. */
static bool needs_list_folder(const char *path, void *user)
{
    others *o = user;
    char folder[PATH_MOST];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    onnx_seen_note(&o->s->rests_on, folder);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strncmp(entry->d_name, o->stem, strlen(o->stem)) == 0)
            note_other(entry->d_name, o);
    if (dir)
        closedir(dir);
    return false;
}

static void note_missing(search *s, const dynamic *it, const char *origin, const char *name)
{
    others found = {.s = s, .text = ""};
    char stem[NAME_MOST];
    snprintf(stem, sizeof stem, "%s", name);
    char *version = strstr(stem, ".so.");
    if (version) {
        version[4] = 0;
        found.stem = stem;
        (void)everywhere(s, it, origin, stem, needs_list_folder, &found);
        (void)in_cache(&s->cache, stem, true, note_other, &found);
    }
    size_t used = strlen(s->text);
    if (used < s->capacity)
        snprintf(s->text + used, s->capacity - used, "%s%s%s%s%s", s->missing ? ", " : "", name,
                 found.text[0] ? " (found " : "", found.text, found.text[0] ? ")" : "");
    s->missing++;
}

/* ---- from library to library ------------------------------------------------------------------------------------- */

static bool is_new(search *s, const char *name)
{
    for (size_t i = 0; i < s->seen_count; i++)
        if (strcmp(s->seen[i], name) == 0)
            return false;
    if (s->seen_count == SEEN_MOST || strlen(name) >= NAME_MOST)
        return false;
    snprintf(s->seen[s->seen_count++], NAME_MOST, "%s", name);
    return true;
}

static bool is_loaded(const char *name)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    else
        (void)dlerror();
    return handle != NULL;
}

typedef struct finding {
    search *s;
    char path[PATH_MOST];
} finding;

static bool keep_readable(const char *path, void *user)
{
    finding *found = user;
    dynamic it;
    onnx_seen_note(&found->s->rests_on, path);
    if (!needs_open_library(path, &it))
        return false;
    needs_unmap(&it.file);
    snprintf(found->path, sizeof found->path, "%s", path);
    return true;
}

static bool follow(search *s, const char *file, const char *also);

static void needs_look_up(search *s, const dynamic *it, const char *origin,
                          const char *name) // NOLINT(misc-no-recursion)
{
    finding found = {.s = s};
    if (!name || !is_new(s, name) || is_loaded(name))
        return;
    if (everywhere(s, it, origin, name, keep_readable, &found))
        (void)follow(s, found.path, NULL);
    else
        note_missing(s, it, origin, name);
}

static bool follow(search *s, const char *file, const char *also) // NOLINT(misc-no-recursion): by SEEN_MOST at the most
{
    dynamic it;
    char origin[PATH_MOST];
    if (!needs_open_library(file, &it))
        return false;
    const char *slash = strrchr(file, '/');
    snprintf(origin, sizeof origin, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
    for (size_t i = 0; i < it.count && it.entries[i].d_tag != DT_NULL; i++)
        if (it.entries[i].d_tag == DT_NEEDED)
            needs_look_up(s, &it, origin, needs_text_at(&it.file, it.texts + it.entries[i].d_un.d_val));
    needs_look_up(s, &it, origin, also);
    needs_unmap(&it.file);
    return true;
}

/* ---- what was found ---------------------------------------------------------------------------------------------- */

enum { ANSWERS_KEPT = 8, TEXT_MOST = 1024 };

typedef struct answer {
    char *file, *also; /* that was asked for; also: NULL where nothing was */
    int missing;
    char text[TEXT_MOST];
    onnx_seen rests_on;
} answer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static answer *answers[ANSWERS_KEPT]; /* guarded by the lock, as what they point to */
static size_t next_place;

static void needs_forget(answer *it)
{
    if (!it)
        return;
    onnx_seen_end(&it->rests_on);
    free(it->file);
    free(it->also);
    free(it);
}

static bool answers_for(const answer *it, const char *file, const char *also)
{
    return it && strcmp(it->file, file) == 0 && (also ? it->also && strcmp(it->also, also) == 0 : !it->also);
}

/* With the lock held. ANSWERS_KEPT: there is none. */
static size_t needs_place_of(const char *file, const char *also)
{
    size_t place = 0;
    while (place < ANSWERS_KEPT && !answers_for(answers[place], file, also))
        place++;
    return place;
}

static bool needs_recall(const char *file, const char *also, int *missing, char *text, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t place = needs_place_of(file, also);
    bool holds = place < ANSWERS_KEPT && onnx_seen_holds(&answers[place]->rests_on);
    if (holds) {
        *missing = answers[place]->missing;
        snprintf(text, capacity, "%s", answers[place]->text);
    }
    pthread_mutex_unlock(&lock);
    return holds;
}

/* Takes what the search rests on. Without memory the next one searches again. */
static void needs_keep(const char *file, const char *also, int missing, search *s)
{
    answer *it = s->rests_on.whole ? calloc(1, sizeof *it) : NULL;
    if (!it)
        return;
    it->file = strdup(file);
    it->also = also ? strdup(also) : NULL;
    it->missing = missing;
    snprintf(it->text, sizeof it->text, "%s", s->text);
    it->rests_on = s->rests_on;
    s->rests_on = (onnx_seen){.whole = false};
    if (!it->file || (also && !it->also)) {
        needs_forget(it);
        return;
    }
    pthread_mutex_lock(&lock);
    size_t place = needs_place_of(file, also);
    place = place < ANSWERS_KEPT ? place : next_place++ % ANSWERS_KEPT;
    answer *before = answers[place];
    answers[place] = it;
    pthread_mutex_unlock(&lock);
    needs_forget(before);
}

int onnx_needs_missing(const char *file, const char *also, char *text, size_t capacity)
{
    char found[TEXT_MOST] = "";
    int missing;
    if (needs_recall(file, also, &missing, text, capacity))
        return missing;
    search *s = begin_search();
    if (!s)
        return -1;
    s->text = found;
    s->capacity = sizeof found;
    onnx_seen_note(&s->rests_on, file);
    missing = follow(s, file, also) ? s->missing : -1;
    snprintf(text, capacity, "%s", found);
    needs_keep(file, also, missing, s);
    end_search(s);
    return missing;
}

bool onnx_needs_find(const char *name, char *path, size_t capacity)
{
    static const dynamic nobody;
    search *s = begin_search();
    finding found = {.s = s};
    bool good = s && everywhere(s, &nobody, "", name, keep_readable, &found);
    if (s)
        end_search(s);
    if (good)
        snprintf(path, capacity, "%s", found.path);
    return good && strlen(found.path) < capacity;
}
