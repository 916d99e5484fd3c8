/* Lists of visible devices: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES.
 *
 * All are numbers and UUIDs between commas, of which the first that is neither ends the list. Else they differ:
 *                          CUDA                         ROCR                  HIP
 *   a number               begins the entry ("1gpu")    is all of it          is all of it
 *   a UUID                 the beginning of just one,   the beginning of      the same
 *                          or more than all of it       just one
 *   " GPU-…", "gpu-…"      ends the list                a UUID                a UUID
 *   numbers and UUIDs      the first entry's kind alone together              together
 *   a device twice         nothing is visible           ends the list         counts once
 *   ""                     nothing is visible           nothing is visible    as if not set
 * CUDA's are of NVIDIA's CUDA Programming Guide, and where that is silent of what driver 580 made of 86 lists on a
 * machine with one H200 (tests/hardware/gpu.c asks whatever driver there is); ROCR's and HIP's of their sources
 * (amd_filter_device.cpp, rocdevice.cpp). */
#ifndef WI_HARDWARE_VISIBLE_H
#define WI_HARDWARE_VISIBLE_H

#include "base/internal.h"

typedef enum wi_visible_rules { WI_VISIBLE_CUDA, WI_VISIBLE_ROCR, WI_VISIBLE_HIP } wi_visible_rules;

/* Which devices a process with this list sees: their numbers into seen[], in the order of their ordinals; answers how
 * many. keys[] are UUIDs; a number in the list counts among the first `counted` of them, a UUID is looked for among all
 * `count`. NULL lets the counted ones be seen. */
size_t wi_visible(wi_visible_rules rules, const char *list, const char *const *keys, size_t counted, size_t count,
                  size_t *seen);

#endif
