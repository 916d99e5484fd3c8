/* devices.h: the engines with their providers, as `weir devices` shows them. */
#ifndef WEIR_CLI_DEVICES_H
#define WEIR_CLI_DEVICES_H

#include <jansson.h>

json_t *devices_engines_json(void);
void devices_engines_print(void);

#endif
