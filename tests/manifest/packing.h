/* Packages as the tests want them: written with libarchive, good and bad. */
#ifndef TESTS_PACKING_H
#define TESTS_PACKING_H

#include "manifest/manifest.h"
#include <weir/manifest.h>

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>

typedef struct packing {
    struct archive *archive;
} packing;

static inline packing pack_begin_as(const char *path, bool gzip)
{
    packing p = {archive_write_new()};
    if (gzip)
        assert_int_equal(archive_write_add_filter_gzip(p.archive), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_pax_restricted(p.archive), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(p.archive, path), ARCHIVE_OK);
    return p;
}

static inline packing pack_begin(const char *path)
{
    return pack_begin_as(path, true);
}

/* `link`: what a link names; else NULL. */
static inline void pack_entry(packing *p, const char *name, unsigned type, const char *link, const void *bytes,
                              size_t length)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, 0777);
    archive_entry_set_size(entry, (la_int64_t)length);
    if (link && type == AE_IFLNK)
        archive_entry_set_symlink(entry, link);
    else if (link)
        archive_entry_set_hardlink(entry, link);
    assert_int_equal(archive_write_header(p->archive, entry), ARCHIVE_OK);
    if (length > 0)
        assert_int_equal(archive_write_data(p->archive, bytes, length), length);
    archive_entry_free(entry);
}

static inline void pack_text(packing *p, const char *name, const char *text)
{
    pack_entry(p, name, AE_IFREG, NULL, text, strlen(text));
}

static inline void pack_end(packing *p)
{
    assert_int_equal(archive_write_close(p->archive), ARCHIVE_OK);
    archive_write_free(p->archive);
}

/* One with metadata.json, a model and what the caller adds. */
static inline packing pack_good(const char *path, const char *manifest)
{
    packing p = pack_begin(path);
    pack_text(&p, "metadata.json", manifest);
    pack_text(&p, "m.onnx", "\x08\x07 model");
    return p;
}

/* How many things are in packages/ of the store, whatever their names; the links to known contents are not counted. */
static inline size_t stored(void)
{
    size_t count = 0;
    DIR *list = opendir("store/packages");
    for (struct dirent *entry; list && (entry = readdir(list));)
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, "known") != 0;
    if (list)
        closedir(list);
    return count;
}

static inline weir_status read_package(const char *path, weir_manifest **out)
{
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    options.store = "store";
    return weir_manifest_read(path, &options, out);
}

#endif
