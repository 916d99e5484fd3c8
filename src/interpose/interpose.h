/* Replaces functions that ONE loaded module imports, by the module's import slots: calls of the module go to the
 * replacements, calls of other modules do not, and code is never written.
 *
 * Four steps: open finds the slots and changes nothing, apply writes them, undo writes back what was there, close
 * ends it. From open to close the module stays loaded, whoever else closes it.
 *
 * What cannot be done safely is refused, and nothing has changed then: WEIR_ERR_NOT_FOUND for a module that is
 * not loaded, and for a function that is required and not imported (CUDA's runtime may be linked into the module);
 * WEIR_ERR_UNSUPPORTED for a module of another machine, with text relocations or packed ones, for a function that the
 * module defines itself, an IFUNC, an address with an addend or one that goes into code, and for a slot that the
 * dynamic linker has not written yet: at the first call the dynamic linker would overwrite the replacement;
 * WEIR_ERR_CORRUPT for tables that contradict themselves.
 *
 * A slot is one word and written atomically, so that threads may call meanwhile: a call goes to the original function
 * or to the replacement. Slots are written in the order of the replacements, and undone in reverse order: of functions
 * that belong together, the one that can deal with whatever the module has comes first (a free before its allocation).
 * What undo cannot wait for: a thread that has read a slot may still be on its way into a replacement, which therefore
 * has to stay, and to work, ever after. Out of reach are addresses that the module has already copied elsewhere at run
 * time, and those that it gets from dlsym. Versions do not choose: a slot is found by the symbol's name.
 *
 * Any thread, where nothing else is said. */
#ifndef WI_INTERPOSE_H
#define WI_INTERPOSE_H

#include <weir/base.h>

typedef struct wi_interpose wi_interpose;

typedef struct wi_replacement {
    const char *name; /* of the symbol, as the module imports it; stays the caller's */
    void (*function)(void);
    bool required; /* else one that is not imported is left out */
} wi_replacement;

/* The module's imports of a replaced function. */
typedef struct wi_interposed {
    void (*original)(void); /* where calls went before; NULL: the module does not import it */
    unsigned slots;
} wi_interposed;

/* Looks for the replacements' slots in the module, a path or name that dlopen finds among those that are loaded; NULL:
 * the program itself. */
weir_status wi_interpose_open(const char *module, const wi_replacement *replacements, size_t count, wi_interpose **out);

/* The file of the module. */
const char *wi_interpose_module(const wi_interpose *it);
/* Of the replacement number `index`. */
wi_interposed wi_interpose_found(const wi_interpose *it, size_t index);
/* Whether the module imports a function of that name, be it replaced or not. */
bool wi_interpose_imports(const wi_interpose *it, const char *name);
/* Returns the function of that name which the module gets, or would get, without weir; NULL: none. Never returns the
 * replacement. */
void (*wi_interpose_symbol(const wi_interpose *it, const char *name))(void);

/* Writes all slots, or none: WEIR_ERR_CONFLICT when a slot has changed since open, with the name of the module whose
 * function the slot holds; WEIR_ERR_SYSTEM when the page of a slot cannot be written; WEIR_ERR_BUSY when the
 * replacements are applied already. */
weir_status wi_interpose_apply(wi_interpose *it);

/* Writes back the original contents of all slots, or of none: WEIR_ERR_CONFLICT, with no slot changed, when a slot no
 * longer holds the replacement, with the name of the module whose function the slot holds. That function may call the
 * replacement. WEIR_OK when the replacements are not applied. */
weir_status wi_interpose_undo(wi_interpose *it);

/* Whether undo could write all slots: WEIR_OK, or its WEIR_ERR_CONFLICT. */
weir_status wi_interpose_check(wi_interpose *it);

/* How many slots hold their replacement now. */
size_t wi_interpose_replaced(const wi_interpose *it);

/* The end. WEIR_ERR_BUSY while it is applied. The module may be unloaded then, whose destructors run in the call.
 * NULL is nothing. */
weir_status wi_interpose_close(wi_interpose *it);

#endif
