/* What the seam of PyTorch looks for in libc10.so to tell of its blocks (src/seams/torch_told.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef struct device {
    int8_t type, index;
} device;

/* What was reported last, and how many reports there were. */
typedef struct reported {
    void *pointer;
    int64_t bytes;
    size_t allocated, reserved;
    device place;
    int reports, refusals;
} reported;

API reported fake_reported;
API bool fake_profiled;
API bool _ZN3c104impl8GPUTrace9haveStateE;
reported fake_reported;
bool fake_profiled;
bool _ZN3c104impl8GPUTrace9haveStateE;

API bool _ZN3c1022memoryProfilingEnabledEv(void);
bool _ZN3c1022memoryProfilingEnabledEv(void)
{
    return fake_profiled;
}

API void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *pointer, int64_t bytes, size_t allocated,
                                                               size_t reserved, device place);
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *pointer, int64_t bytes, size_t allocated,
                                                           size_t reserved, device place)
{
    fake_reported =
        (reported){pointer, bytes, allocated, reserved, place, fake_reported.reports + 1, fake_reported.refusals};
}

API void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated, size_t reserved,
                                                             device place);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated, size_t reserved, device place)
{
    fake_reported =
        (reported){NULL, bytes, allocated, reserved, place, fake_reported.reports, fake_reported.refusals + 1};
}
