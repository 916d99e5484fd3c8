/* The imports of an ELF module as it lies in memory: the slots (GOT, and data that holds the address of a function)
 * into which the dynamic linker has written where functions of other modules are. Nothing here writes, loads or asks
 * the dynamic linker; reads stay inside the module's segments, even if the tables are wrong. Modules of 64 bits, little
 * endian, for x86-64 and arm64. */
#ifndef WI_ELF_IMPORTS_H
#define WI_ELF_IMPORTS_H

#include "base/internal.h"

#include <elf.h>

/* Where a module lies. Its texts stay the caller's. */
typedef struct wi_elf_image {
    const char *name; /* for messages */
    uintptr_t bias;   /* what is added to an address of the file's to have it in memory */
    const Elf64_Phdr *segments;
    size_t count;
} wi_elf_image;

typedef struct wi_elf_table {
    uint64_t address, bytes; /* the file's address; 0, 0: there is none */
} wi_elf_table;

typedef struct wi_elf_module {
    wi_elf_image image;
    uint16_t machine;
    bool needs_text_writes; /* text relocations */
    bool plt_may_be_direct; /* DT_X86_64_PLT: the dynamic linker may have replaced the slots of the PLT by jumps */
    bool unknown_packing;   /* relocations in a form that is not read here */
    wi_elf_table texts;     /* DT_STRTAB */
    uint64_t symbols;       /* DT_SYMTAB, */
    uint64_t symbol_count;  /* symbols that the module defines have a lower index */
    wi_elf_table rela, rel, plt;
    uint64_t rela_relative; /* DT_RELACOUNT: so many at the beginning of `rela` name no symbol */
    bool plt_has_addends;
    wi_elf_table read_only; /* PT_GNU_RELRO */
    wi_elf_table dynamic;
} wi_elf_module;

typedef enum wi_elf_use {
    WI_ELF_OTHER = 0,     /* no slot: the address goes into code, or is computed with */
    WI_ELF_JUMP_SLOT = 1, /* for calls through the PLT */
    WI_ELF_GLOB_DAT = 2,  /* for calls without a PLT, and for the address */
    WI_ELF_ADDRESS = 3    /* data that was initialised with the address: tables of functions */
} wi_elf_use;

/* A relocation that names a symbol. */
typedef struct wi_elf_import {
    const char *name;
    wi_elf_use use;
    uint32_t type; /* the relocation's own number */
    uintptr_t slot;
    bool has_addend; /* one other than 0 */
    bool defined;    /* by the module itself */
    bool indirect;   /* an IFUNC */
    bool writable;   /* the slot lies in a segment that the program may write, be it sealed after the start */
    bool aligned;
} wi_elf_import;

typedef weir_status (*wi_elf_import_fn)(const wi_elf_import *import, void *user);

/* Reads the header, the segments and the dynamic section of a module. Errors: WEIR_ERR_UNSUPPORTED for a machine or a
 * form that is not known here, WEIR_ERR_CORRUPT for tables that leave the module. */
weir_status wi_elf_open(const wi_elf_image *image, wi_elf_module *out);

/* Calls `fn` for each relocation that names a symbol, with relocations of calls (the PLT) first, until `fn` fails;
 * returns the status of `fn`. WEIR_ERR_CORRUPT where a relocation, a symbol or a name leaves the module. */
weir_status wi_elf_each_import(const wi_elf_module *module, wi_elf_import_fn fn, void *user);
/* The same, only for symbols whose name `wants` accepts; relocations of other symbols are not checked. */
weir_status wi_elf_each_named(const wi_elf_module *module, bool (*wants)(const char *name, void *user),
                              wi_elf_import_fn fn, void *user);

/* Whether the module defines a symbol of that name for others. */
bool wi_elf_defines(const wi_elf_module *module, const char *name, bool *indirect);

/* Whether an address in memory lies in one of its segments. */
bool wi_elf_contains(const wi_elf_module *module, uintptr_t address);

/* Whether the dynamic linker has made the page of that address read-only after it had written the slots there. */
bool wi_elf_is_sealed(const wi_elf_module *module, uintptr_t address, size_t page);

/* EM_X86_64, EM_AARCH64: what this program runs on; EM_NONE: neither. */
uint16_t wi_elf_own_machine(void);

#endif
