/* Other machines: directories made in the build tree, looked at as sysroots, their devices as lines of text. */
#ifndef MACHINE_H
#define MACHINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <weir/select.h>

#define GIB (UINT64_C(1) << 30)

/* Where Debian puts libraries on this kind of processor. */
#if defined __aarch64__
#define LIBRARIES "usr/lib/aarch64-linux-gnu"
#else
#define LIBRARIES "usr/lib/x86_64-linux-gnu"
#endif

typedef struct machine {
    char root[512];
} machine;

/* An empty directory of this name, without anything from a test before. */
machine machine_make(const char *name);

/* Writes a file of the machine; directories on the way are made. */
void machine_file(const machine *m, const char *path, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* 8 processors and so much memory, `free` of it free. */
void machine_host(const machine *m, uint64_t total, uint64_t free);

/* Puts a copy of a stub ("libnvml.so", "libnvml-old.so", "libcuda.so") into a directory, under this name. */
void machine_library(const machine *m, const char *stub, const char *directory, const char *name);

/* Puts copies of the stubs into a directory of libraries, with what they tell. */
enum { MACHINE_NVML = 1, MACHINE_CUDA = 2, MACHINE_BOTH = 3 };
void machine_libraries(const machine *m, int which, const char *directory, const char *gpus);

/* A device on the bus, and one that is a card of the kernel's graphics too. */
void machine_pci(const machine *m, const char *address, unsigned vendor, unsigned device, const char *driver);
void machine_card(const machine *m, unsigned number, const char *address, unsigned vendor, unsigned device,
                  const char *driver);

/* A look with these options, where NULL is none; the sysroot is set. To be given back. */
weir_hardware *machine_look(const machine *m, const weir_hardware_options *options);

/* The devices must be these, a line each:
 *   KIND KEY PARENT PCI RUNTIME ORDINAL TOTAL FREE FLAGS UNITS CAPABILITY DRIVER/RUNTIME NAME [REMARK]
 * "-" for what is "", bytes in GiB or ?, flags h (shares the host's memory) d (discrete) u (usable). */
void machine_expect(const machine *m, const weir_hardware_options *options, const char *lines);
void machine_expect_of(const weir_hardware *hardware, const char *lines);

/* The devices must be these within 10 s: what failed slowly, as it may on a busy machine, is not asked again at
 * once. */
void machine_expect_soon(const machine *m, const char *lines);

/* The remarks must have this in them, or not. */
void machine_remarks(const weir_hardware *hardware, const char *part, int present);

#endif
