/* snapshot.h: the snapshot of PyTorch's allocator: a dictionary with the segments as they are at the end, and the
 * entries of a ring for each device. weir says who a block is for in its frames, where PyTorch has the stack. */
#ifndef WI_TRACE_SNAPSHOT_H
#define WI_TRACE_SNAPSHOT_H

#include "trace/recording.h"

#include <stdio.h>

/* The file names of those frames. */
#define SNAPSHOT_TAG    "weir/tag"
#define SNAPSHOT_CLASS  "weir/class"
#define SNAPSHOT_CLIENT "weir/client"

enum { SNAPSHOT_TEXT_MOST = 512, SNAPSHOT_FRAMES = 64 };

#endif
