/* dlsym, as programs find it first. The C library's own looks at who has called it, for RTLD_NEXT and RTLD_DEFAULT: it has
 * to be reached by a jump, from a stack that is as the caller left it. So this is written for the machine. */
#include "interpose/preload/preload.h"

/* The C library's; set before the first jump. */
extern void *(*wp_real_dlsym)(void *handle, const char *name);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    movq (%rsp), %rdx\n" /* who has called */
        "    pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    call wp_find_symbol\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    testq %rdx, %rdx\n"
        "    jne 1f\n"
        "    jmpq *wp_real_dlsym(%rip)\n"
        "1:  ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    stp x29, x30, [sp, #-32]!\n"
        ".cfi_adjust_cfa_offset 32\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x2, x30\n" /* who has called */
        "    bl wp_find_symbol\n"
        "    cbnz x1, 1f\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    adrp x9, wp_real_dlsym\n"
        "    ldr x9, [x9, #:lo12:wp_real_dlsym]\n"
        "    mov x16, x9\n"
        "    br x16\n"
        "1:  ldp x29, x30, [sp], #32\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
/* cppcheck-suppress preprocessorErrorDirective ; it looks at no machine */
#error "libweir-preload.so is for x86-64 and arm64"
#endif
