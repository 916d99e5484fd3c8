/* Where tests find their data, and what was built. Only test_places.c differs from tree to tree: objects of all other sources come
 * out of ccache, which a definition with a folder of this tree would prevent. */
#ifndef TESTS_TEST_PLACES_H
#define TESTS_TEST_PLACES_H

/* tests/data and the folder of the build. */
extern const char data_folder[], built_folder[];

/* A path below them, which lasts until the same thread's fourth call after this one. */
const char *data_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *built_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
