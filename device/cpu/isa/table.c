/* The table of one instruction set. */
#include "device/cpu/isa/passes.h"

#define FL_NAME_TEXT_(name) #name
#define FL_NAME_TEXT(name) FL_NAME_TEXT_(name)

extern const fl__isa FL_ISA_NAME(isa);

const fl__isa FL_ISA_NAME(isa) = {
    .name = FL_NAME_TEXT(FL_ISA),
    .gemm_workspace = FL_ISA_NAME(gemm_workspace),
    .gemm = FL_ISA_NAME(gemm),
    .gemm_bf16_workspace = FL_ISA_NAME(gemm_bf16_workspace),
    .gemm_bf16 = FL_ISA_NAME(gemm_bf16),
    .column_sums = FL_ISA_NAME(column_sums),
    .activate = FL_ISA_NAME(activate),
    .activate_backward = FL_ISA_NAME(activate_backward),
    .layernorm = FL_ISA_NAME(layernorm),
    .layernorm_backward = FL_ISA_NAME(layernorm_backward),
    .rmsnorm = FL_ISA_NAME(rmsnorm),
    .rmsnorm_backward = FL_ISA_NAME(rmsnorm_backward),
    .attention_workspace = FL_ISA_NAME(attention_workspace),
    .attention = FL_ISA_NAME(attention),
    .attention_backward = FL_ISA_NAME(attention_backward),
    .dropout = FL_ISA_NAME(dropout),
    .add = FL_ISA_NAME(add),
    .add_bf16 = FL_ISA_NAME(add_bf16),
    .cross_entropy = FL_ISA_NAME(cross_entropy),
    .adamw = FL_ISA_NAME(adamw),
    .sgd = FL_ISA_NAME(sgd),
    .sum_squares = FL_ISA_NAME(sum_squares),
    .narrow = FL_ISA_NAME(narrow),
    .widen = FL_ISA_NAME(widen),
    .narrow_rows = FL_ISA_NAME(narrow_rows),
    .widen_rows = FL_ISA_NAME(widen_rows),
};
