/* The entries of the device table that can fail, in three lists. */
#ifndef FL_DEVICE_ASYNC_ENTRIES_H
#define FL_DEVICE_ASYNC_ENTRIES_H

/* X(name): what the call does is done when it returns. */
#define FL__ASYNC_CALLS(X)                                                                         \
    X(memory_take)                                                                                 \
    X(memory_reserve)                                                                              \
    X(memory_share)                                                                                \
    X(host_take)                                                                                   \
    X(stream_create)                                                                               \
    X(sync)                                                                                        \
    X(event_create)                                                                                \
    X(event_wait)                                                                                  \
    X(event_elapsed)                                                                               \
    X(event_reached)                                                                               \
    X(stream_native)

/* X(name): the call queues work. */
#define FL__ASYNC_WORK(X)                                                                          \
    X(copy_in)                                                                                     \
    X(copy_out)                                                                                    \
    X(copy)                                                                                        \
    X(fill_zero)                                                                                   \
    X(event_record)                                                                                \
    X(stream_wait)

/* X(name, arguments): kernels that take one struct. */
#define FL__ASYNC_KERNELS(X)                                                                       \
    X(linear, fl_linear_args)                                                                      \
    X(linear_backward_input, fl_linear_backward_input_args)                                        \
    X(linear_backward_weights, fl_linear_backward_weights_args)                                    \
    X(activate, fl_activate_args)                                                                  \
    X(activate_backward, fl_activate_backward_args)                                                \
    X(layernorm, fl_norm_args)                                                                     \
    X(layernorm_backward, fl_norm_backward_args)                                                   \
    X(rmsnorm, fl_norm_args)                                                                       \
    X(rmsnorm_backward, fl_norm_backward_args)                                                     \
    X(attention, fl_attention_args)                                                                \
    X(attention_backward, fl_attention_backward_args)                                              \
    X(dropout, fl_dropout_args)                                                                    \
    X(add, fl_add_args)                                                                            \
    X(convert, fl_convert_args)                                                                    \
    X(gather_rows, fl_gather_rows_args)                                                            \
    X(scatter_rows, fl_scatter_rows_args)                                                          \
    X(embed, fl_embed_args)                                                                        \
    X(embed_backward, fl_embed_backward_args)                                                      \
    X(patchify, fl_patchify_args)                                                                  \
    X(patchify_backward, fl_patchify_args)                                                         \
    X(vit_assemble, fl_vit_assemble_args)                                                          \
    X(vit_assemble_backward, fl_vit_assemble_backward_args)                                        \
    X(cross_entropy, fl_cross_entropy_args)                                                        \
    X(span_cross_entropy, fl_span_cross_entropy_args)                                              \
    X(squared_error, fl_squared_error_args)

/* X(name, arguments): kernels that take lists or plain values; the structs are those of kernels.c.
 */
#define FL__ASYNC_OTHER_KERNELS(X)                                                                 \
    X(add_to_sum, add_to_sum_args)                                                                 \
    X(adamw_many, adamw_args)                                                                      \
    X(sgd_many, sgd_args)                                                                          \
    X(sum_squares_many, squares_args)

typedef enum fl__async_entry {
#define FL__ASYNC_ENUM(name, ...) FL__ASYNC_##name,
    FL__ASYNC_CALLS(FL__ASYNC_ENUM) FL__ASYNC_WORK(FL__ASYNC_ENUM) FL__ASYNC_KERNELS(FL__ASYNC_ENUM)
        FL__ASYNC_OTHER_KERNELS(FL__ASYNC_ENUM)
#undef FL__ASYNC_ENUM
            FL__ASYNC_ENTRIES,
    FL__ASYNC_FIRST_WORK = FL__ASYNC_copy_in,
} fl__async_entry;

const char *fl__async_entry_name(fl__async_entry entry);

#endif
