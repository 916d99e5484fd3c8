/* The command that puts engines into the store, as messages call it: in a wheel it is the command weir's. */
#ifndef WI_ENGINES_COMMAND_H
#define WI_ENGINES_COMMAND_H

#ifndef WEIR_ENGINES_COMMAND
#define WEIR_ENGINES_COMMAND "scripts/engines"
#endif

#endif
