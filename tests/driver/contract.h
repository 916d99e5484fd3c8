/* The contract suite of drivers: one open device, and a check around every call that the thread is left as it was. */
#ifndef TEST_CONTRACT_H
#define TEST_CONTRACT_H

#include "driver/device.h"
#include "driver/driver.h"
#include "base/system.h"

extern const wi_driver *driver;
extern wi_device *device;
extern uint64_t granule;

/* What the calling thread has current and how it captures; {0} on host. */
typedef struct thread_state {
    void *context;
    uint64_t depth, mode;
} thread_state;
thread_state look_at_thread(void);
void expect_thread(thread_state before, const char *call);

/* A call of the driver's table, its status, and the check. */
#define D(call)                                                                                                        \
    __extension__({                                                                                                    \
        thread_state before_ = look_at_thread();                                                                       \
        weir_status status_ = driver->call;                                                                            \
        expect_thread(before_, #call);                                                                                 \
        status_;                                                                                                       \
    })
#define V(call)                                                                                                        \
    do {                                                                                                               \
        thread_state before_ = look_at_thread();                                                                       \
        driver->call;                                                                                                  \
        expect_thread(before_, #call);                                                                                 \
    } while (0)
#define ok(status)              check_status(status, WEIR_OK, __FILE__, __LINE__)
#define fails(status, expected) check_status(status, expected, __FILE__, __LINE__)
void check_status(weir_status status, weir_status expected, const char *file, int line);

int open_device(void **state);
int close_device(void **state);
/* Everything is with the driver again: handles, mappings, addresses, pieces, contexts, streams, events (stub). */
void expect_nothing_left(void);

void *new_stream(void);

/* Reserved addresses with `count` handles mapped at the front of them. */
typedef struct mapped_range {
    char *address;
    uint64_t bytes;
    size_t count;
    wi_handle handles[16];
} mapped_range;
void make_range(mapped_range *range, size_t granules, size_t count);
void drop_range(mapped_range *range);
void fill_granules(char *address, size_t count, uint8_t first);
/* The granule's bytes are all `value`. */
void expect_granule(const char *address, uint8_t value);

int run_memory_tests(void);
int run_handle_tests(void);
int run_cover_tests(void);
int run_stream_tests(void);
int run_single_tests(void);
int run_many_tests(void);
int run_foreign_tests(void);
int run_stub_tests(void);

#endif
