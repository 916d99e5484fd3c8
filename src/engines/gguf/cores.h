/* cores.h: how many cores there are to compute on. */
#ifndef WG_CORES_H
#define WG_CORES_H

/* Physical cores among the processors this process may run on; at least 1. */
int wg_cores(void);

#endif
