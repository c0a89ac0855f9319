/* The stand-in's kernels, which run in the shim, and its library of products. */
#include "tests/shim/cublaslt/cublasLt.h"
#include "tests/shim/cublaslt_table.h"
#include "tests/shim/standin_parts.h"

#define STANDIN_CASE(kernel, args)                                                                 \
    int standin__##kernel(fl__cuda_queue *q, const args *a)                                        \
    {                                                                                              \
        FAIL_OR_GO_ON(#kernel);                                                                    \
        standin_spend(standin.kernel_us);                                                          \
        return standin_note_launch(fl__cuda_##kernel(q, a));                                       \
    }
FL__CUDA_LAUNCHES(STANDIN_CASE)
#undef STANDIN_CASE

int standin__library_open(bool tf32, fl__cuda_library **out, const char **reason)
{
    FAIL_OR_GO_ON("library_open");
    *reason = standin.no_library;
    return standin.no_library == NULL ? standin_library_open(tf32, out) : (int)FL__CUDA_NO_LIBRARY;
}

int standin__library_close(fl__cuda_library *library)
{
    ONE_CALL;
    int code = fl__cublaslt_close(library);
    int failure = standin_failure_of("library_close");
    return failure == 0 ? code : failure;
}

int standin__library_multiply(fl__cuda_library *library, fl__cuda_queue *q,
                              const fl__cuda_product *p)
{
    FAIL_OR_GO_ON("library_multiply");
    return fl__cublaslt_multiply(library, q, p);
}

int standin__library_save(fl__cuda_library *library, char *text, size_t size_bytes,
                          size_t *needed_bytes)
{
    FAIL_OR_GO_ON("library_save");
    return fl__cublaslt_save(library, text, size_bytes, needed_bytes);
}

int standin__library_load(fl__cuda_library *library, const char *text, int *n_taken)
{
    FAIL_OR_GO_ON("library_load");
    return fl__cublaslt_take(library, text, n_taken);
}

int standin__add_to_sum(fl__cuda_queue *q, double value, double *sum)
{
    FAIL_OR_GO_ON("add_to_sum");
    return standin_note_launch(fl__cuda_add_to_sum(q, value, sum));
}

int standin__adamw_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_adamw_step *step)
{
    FAIL_OR_GO_ON("adamw_many");
    return standin_note_launch(fl__cuda_adamw_many(q, list, n, step));
}

int standin__sgd_many(fl__cuda_queue *q, const fl_update *list, int n, const fl_sgd_step *step)
{
    FAIL_OR_GO_ON("sgd_many");
    return standin_note_launch(fl__cuda_sgd_many(q, list, n, step));
}

int standin__sum_squares_many(fl__cuda_queue *q, const fl_square_sum *list, int n)
{
    FAIL_OR_GO_ON("sum_squares_many");
    return standin_note_launch(fl__cuda_sum_squares_many(q, list, n));
}
