/* The command that puts engines into the store, as messages call it: a wheel has it under a name of its own. */
#ifndef WI_ENGINES_COMMAND_H
#define WI_ENGINES_COMMAND_H

#ifndef WEIR_ENGINES_COMMAND
#define WEIR_ENGINES_COMMAND "scripts/engines"
#endif

#endif
