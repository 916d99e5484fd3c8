/* report.h: a run as one page that needs nothing else. */
#ifndef WEIR_CLI_REPORT_H
#define WEIR_CLI_REPORT_H

#include "run.h"

/* Writes the page of a run whose timeline is stopped and was kept. On failure nothing is left at `path`. */
weir_status report_write(run *all, const char *path);

#endif
