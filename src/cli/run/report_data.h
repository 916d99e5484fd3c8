/* report_data.h: the numbers behind the report's picture. */
#ifndef WEIR_CLI_REPORT_DATA_H
#define WEIR_CLI_REPORT_DATA_H

#include "run.h"

/* Writes them as JSON for the page's script: {budget, peak, clients, series, points, phases}. */
void report_put_data(FILE *file, run *all);

#endif
