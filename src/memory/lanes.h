/* Lanes: the order of streams, in which free memory is handed on without an event for each free.
 *
 * What is freed on a stream belongs to the stream's lane and to the lane's open epoch. Work that is queued on that stream
 * later may have it at once. An epoch is closed by one event behind all its frees; when the device is past that, its memory
 * is anyone's. Events are recorded when somebody else wants what the lane has, and after a number of frees where there are
 * other lanes, so that what they find has had time to pass.
 *
 * A stream may end without a word, while its work goes on. Its lane is *gone* then: it serves nobody, and what was freed there
 * since the last event waits for a point behind all work of the device, which is had when memory is short, or given back: to
 * ask for it breaks captures that the driver does not know of. The same holds for a lane on whose stream no event can be
 * recorded.
 *
 * Laws: passed <= recorded < open; an extent has a lane if and only if it is in that lane's list and in its bins; the
 * list is in the order of epochs; a place has no lane of a stream that has ended. All under the lock of the resource, but for
 * events, which are recorded without it. */
#ifndef WI_LANES_H
#define WI_LANES_H

#include "memory/extents.h"
#include "memory/resource.h"

enum { WI_LANE_MARKS = 8, WI_LANE_PLACES = 1024 }; /* places: as many as a runtime has streams (streams.h) */

typedef struct wi_lane_mark {
    uint64_t epoch;
    wi_event event; /* behind the frees of all epochs up to that */
    uint64_t freed; /* the lane's, when it was recorded */
} wi_lane_mark;

/* A lane whose stream was settled serves the next one in the same place: its epochs go on. */
struct wi_lane {
    weir_stream stream; /* id 0: none */
    void *native;
    uint64_t open, recorded, passed; /* epochs */
    uint64_t frees;                  /* in the open one */
    uint64_t freed, freed_passed;    /* bytes in all, and in epochs that have passed */
    bool recording;                  /* a thread is about it */
    bool gone;                       /* the stream has ended without a word: nothing can be recorded on it any more */
    bool refused;                    /* the driver did not record when it was asked last */
    wi_lane *next_gone;              /* or spent */
    wi_lane_mark bound;              /* while a point behind all work is recorded; epoch 0: not for this lane */
    unsigned place;
    wi_lane_mark marks[WI_LANE_MARKS];
    unsigned first_mark, mark_count;
    uint64_t bytes;          /* free here */
    wi_extent *first, *last; /* what is free here, by epoch; linked by lane_next */
    wi_shelf shelves[WI_SHELVES];
};

typedef struct wi_lanes {
    wi_resource *resource;           /* whose lock it is */
    uint64_t released;               /* bytes that have become anyone's so far */
    unsigned *count;                 /* lanes that have a stream */
    unsigned used;                   /* places from there on never had a lane */
    wi_lane *places[WI_LANE_PLACES]; /* by the place of the stream in the runtime's table */
    uint32_t ended[WI_LANE_PLACES];  /* generation of the last stream there that has ended */
    wi_lane *gone;                   /* linked by next_gone; the last one is always there: */
    wi_lane late;                    /* what is freed on a stream that ends meanwhile */
    wi_lane *spent;                  /* for the next streams */
    bool bounding;                   /* a thread is about it */
} wi_lanes;

/* Tells streams of a runtime apart, now and ever; 0 is none. The rest of an id is the runtime's number. */
static inline uint64_t wi_lane_number(weir_stream stream)
{
    return stream.id & (UINT64_MAX >> 16);
}

void wi_lanes_init(wi_lanes *lanes, wi_resource *resource, unsigned *count);
void wi_lanes_destroy(wi_lanes *lanes); /* nothing is free in any */

/* The stream's lane; NULL when it has none. */
wi_lane *wi_lanes_find(const wi_lanes *lanes, weir_stream stream);
/* The same, made when there is none; NULL without host memory, for a stream that has ended, and while another one has its
 * place. */
wi_lane *wi_lanes_get(wi_lanes *lanes, weir_stream stream, void *native);
/* The lane for what is freed on a stream whatever has become of it, or, for WEIR_STREAM_HOST, behind all work of the device. */
wi_lane *wi_lanes_get_late(wi_lanes *lanes, weir_stream stream, void *native);
/* The device is past all work of the stream, whose id will not be used again: what it has is anyone's. Answers the bytes. */
uint64_t wi_lanes_forget(wi_lanes *lanes, weir_stream stream);
/* The stream ends here, though the device may not be past its work: what it has is anyone's when that is so. */
void wi_lanes_abandon(wi_lanes *lanes, weir_stream stream);
/* Has the driver record a point behind all work where lanes wait for one; false: none does, or it cannot be had now. The lock
 * is released while the driver works. */
bool wi_lanes_bound(wi_lanes *lanes);
/* Waits for what was abandoned; nothing is free in any lane then. All other streams are forgotten. */
void wi_lanes_drain(wi_lanes *lanes);
/* Every lane, those that are gone, too: the one after `lane`, NULL behind the last one; the first one after NULL. */
wi_lane *wi_lanes_next(const wi_lanes *lanes, const wi_lane *lane);

/* After so many frees in the lane: closes the epoch where that is due. The lock is released while the driver works. */
void wi_lanes_freed(wi_lanes *lanes, wi_lane *lane, uint64_t bytes, uint64_t count);
/* The same of what was another's and comes back unused: closes nothing. */
void wi_lanes_returned(wi_lane *lane, uint64_t bytes);
/* Closes the open epochs of all lanes and asks the driver what has passed, which becomes anyone's; answers the bytes. The lock
 * is released while the driver works. */
uint64_t wi_lanes_renew(wi_lanes *lanes);
/* How much of what is free has not passed, at most: while there is one lane alone, what was anyone's may have joined it. */
uint64_t wi_lanes_bytes(const wi_lanes *lanes);
/* For whoever reads a trace: `other` may use the bytes from here on; the extent's own stream stands for everybody. */
void wi_lanes_trace(const wi_lanes *lanes, const wi_extent *extent, weir_stream other);
/* The oldest point that something waits for, in the lane other than the stream's that has the most; false: nothing waits for
 * a known one. */
bool wi_lanes_oldest(const wi_lanes *lanes, weir_stream but, wi_event *out);
/* The point behind what is free in the extent; false where none was recorded yet. */
bool wi_lanes_point(const wi_extent *extent, wi_event *out);

#endif
