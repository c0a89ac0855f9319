/* One stage of a pipeline: its layers, their parameters, and memory for the micro-batches in
 * flight. It only computes; the pipeline (pipeline.c) moves tensors between stages.
 *
 * Memory, all taken at creation, as fl_memory_stage counted it:
 *     slots    [n_slots]  one micro-batch each: input, every layer's output, what layers keep
 *     scratch  two gradient buffers that take turns, then the temporaries of the layer at work
 * After that a step allocates nothing. A stage of the next plan may find the device too full while
 * the present one trains: it then only reserves its memory, and claims it when the other has given
 * up its own. Threads: one. */
#ifndef FL_PIPE_STEP_STAGE_STAGE_H
#define FL_PIPE_STEP_STAGE_STAGE_H

#include "pipe/cost/memory/memory.h"
#include "pipe/state/params.h"

typedef struct fl_stage fl_stage;

enum {
    FL_STAGE_REASON_BYTES = 256,
    FL_STAGE_SHAPES = 32, /* of micro-batches; those of further shapes run call by call */
};

typedef struct fl_stage_options {
    const fl_model *model; /* borrowed, as everything here */
    const fl_dataset *dataset;
    const fl_job *job;
    fl_device *device;
    fl_stream *stream; /* all work of the stage goes there; nothing below waits for it */
    int first, last;   /* layers first .. last - 1 */
    int n_frozen;      /* layers of the whole model below the frost line */
    int enter;         /* the layer at which micro-batches enter; below `first`: there */
    const fl_state_source *source; /* as in fl_params_options; needed only while creating */
    int n_slots;
    int n_ahead; /* micro-batches that begin between two calls of fl_stage_settle; 0: n_slots */
    fl_capacity capacity;        /* of a micro-batch */
    fl_stage_memory memory;      /* as fl_memory_stage counts it for this capacity */
    const unsigned char *handed; /* [layers of the model] as in fl_params_options; NULL: nothing */
    bool reserve;                /* device memory is only reserved, until fl_stage_claim */
} fl_stage_options;

/* Returns FL_EBUDGET with the numbers when the device is too small. */
fl_status fl_stage_create(const fl_stage_options *options, fl_stage **out) FL_MUST_CHECK;
void fl_stage_destroy(fl_stage **stage);

/* Give up what only computing needs: slots, scratch and gradients. Weights and moments stay. */
void fl_stage_strip(fl_stage *stage);

/* Count what was reserved; FL_EBUDGET if there is no room for it after all. */
fl_status fl_stage_claim(fl_stage *stage) FL_MUST_CHECK;

/* The samples of one micro-batch. */
typedef struct fl_micro_batch {
    fl_split split;
    const int64_t *ids; /* [n]; copied */
    int64_t n;
    uint64_t seed;
    int64_t epoch;
    int64_t n_global;
    bool training;
    bool plain; /* its layers run call by call */
} fl_micro_batch;

/* Bytes of this micro-batch where it enters the stage, and where it leaves it. */
fl_status fl_stage_boundary_bytes(fl_stage *stage, fl_split split, const int64_t *ids, int64_t n,
                                  size_t *in_bytes, size_t *out_bytes) FL_MUST_CHECK;

/* The host has waited for the stream: what was sent with the micro-batches so far has arrived. */
void fl_stage_settle(fl_stage *stage);

/* Begin a micro-batch in `slot`: *input is where the caller puts what enters the stage. */
fl_status fl_stage_begin(fl_stage *stage, int slot, const fl_micro_batch *batch,
                         fl_tensor *input) FL_MUST_CHECK;

/* Run the layers from `from` to the one where micro-batches enter, for some samples of the slot's
 * micro-batch, whose input is still to come.
 * which      [n] the samples, as they stand in the micro-batch
 * rows       host memory; what sample which[i] has in front of `from` lies at rows +
 *            place[which[i]], and there comes what it has behind the last of them. It belongs to
 * the stream until the stream has come here. */
fl_status fl_stage_fill(fl_stage *stage, int slot, int from, const int32_t *which, int64_t n,
                        unsigned char *rows, const size_t *place) FL_MUST_CHECK;

/* Rows of some samples, outside the stage. */
typedef struct fl_stage_rows {
    int64_t first, last; /* samples first .. last - 1 */
    unsigned char *base; /* sample i lies at base + place[i] ... */
    const size_t *place; /* [last] */
    bool on_device;      /* ... in device memory; else the host's */
} fl_stage_rows;

/* Copy these rows into a tensor of the stage. They belong to the stream until the stream has come
 * here. */
fl_status fl_stage_put_rows(fl_stage *stage, const fl_tensor *to,
                            const fl_stage_rows *rows) FL_MUST_CHECK;

/* Run all layers from where the micro-batch entered; *output is the last one's, valid until the
 * slot is begun again. It lies at `to`, which the caller leaves alone until the backward of the
 * micro-batch; NULL: in the slot. */
fl_status fl_stage_forward(fl_stage *stage, int slot, void *to, fl_tensor *output) FL_MUST_CHECK;

/* The last stage: the loss of the slot's output, added to *sums, which is complete once the stream
 * was waited for. With want_grad, the gradient is left where fl_stage_backward begins; grad_scale
 * is one target's weight in it. */
fl_status fl_stage_loss(fl_stage *stage, int slot, bool want_grad, float grad_scale,
                        fl_loss_sums *sums) FL_MUST_CHECK;

/* The same of one sample, without a gradient: a sample's loss must not depend on those beside it.
 */
fl_status fl_stage_sample_loss(fl_stage *stage, int slot, int64_t sample,
                               fl_loss_sums *sums) FL_MUST_CHECK;

/* Any other stage: where the caller puts the gradient of the slot's output before backward. */
void fl_stage_grad_out(fl_stage *stage, int slot, fl_tensor *grad_out);

/* The last stage, instead of the loss: end the evaluation of the slot's micro-batch. */
void fl_stage_end(fl_stage *stage, int slot);

/* The ids of the samples of the slot's micro-batch. */
const int64_t *fl_stage_samples(const fl_stage *stage, int slot);

/* The last stage: the targets of the slot's micro-batch, with their data in host memory. */
fl_tensor fl_stage_targets(const fl_stage *stage, int slot);

/* Called after each layer's backward, from the top down. */
typedef fl_status fl_stage_layer_done(void *context, int slot, int layer);

/* Run all backward passes. *grad_in is the gradient of the stage's input: at `to`, or, if that is
 * NULL, in the stage, valid until the next call on it; its data is NULL if want_grad_in is false or
 * the frost line lies above. */
fl_status fl_stage_backward(fl_stage *stage, int slot, bool want_grad_in, void *to,
                            fl_stage_layer_done *layer_done, void *context,
                            fl_tensor *grad_in) FL_MUST_CHECK;

fl_params *fl_stage_params(fl_stage *stage);

/* The layer at which micro-batches enter. */
int fl_stage_entry(const fl_stage *stage);

/* The id of the i-th sample of the slot's micro-batch. */
int64_t fl_stage_sample(const fl_stage *stage, int slot, int64_t i);

/* What a micro-batch has left at boundary i of the stage, in training until its backward: 0 is the
 * stage's input, i the output of its i-th layer. Its data is NULL below where micro-batches enter.
 */
fl_tensor fl_stage_boundary(const fl_stage *stage, int slot, int i);

/* Within fl_stage_layer_done: the gradient of the layer's input. It was computed for all layers
 * but the lowest that trains, and for that one if the stage below trains. Not where backward was
 * told to leave it elsewhere. */
fl_tensor fl_stage_grad_in(const fl_stage *stage, int slot, int layer);

/* ---- graphs (stage_graphs.c) ---- */

/* Backward is captured in pieces: one ends with this layer, so that layer_done comes when its
 * gradients are on their way. Before the first micro-batch. */
void fl_stage_cut_backward(fl_stage *stage, int layer);

/* Whether all of the slot's backward has been captured in pieces, and these are the faster way. */
bool fl_stage_has_backward_graphs(const fl_stage *stage, int slot);

/* Capture the slot's backward as one graph, with what layer_done captures where a piece ends, and
 * join at the end. Nothing of it is done; the slot is as before. */
typedef fl_status fl_stage_join(void *context);
fl_status fl_stage_capture_backward(fl_stage *stage, int slot, bool want_grad_in,
                                    fl_stage_layer_done *layer_done, fl_stage_join *join,
                                    void *context, fl_graph **graph) FL_MUST_CHECK;

/* fl_stage_backward by that graph, which `launch` puts into the stage's stream. */
fl_status fl_stage_backward_captured(fl_stage *stage, int slot, bool want_grad_in,
                                     fl_status (*launch)(void *context), void *context,
                                     fl_tensor *grad_in) FL_MUST_CHECK;

/* What the time of the slot's forward or backward tells: for fl_stage_learn; -1: nothing. */
int fl_stage_label(const fl_stage *stage, int slot);

/* The device took so long for it. Between two steps: no slot holds a micro-batch. */
void fl_stage_learn(fl_stage *stage, int label, double us);

/* How micro-batches of a shape are computed. */
typedef enum fl_stage_way {
    FL_STAGE_MEASURED,  /* both ways are tried in turn */
    FL_STAGE_BY_GRAPHS, /* measured to be at least as fast */
    FL_STAGE_BY_CALLS,
    FL_STAGE_WAYS,
} fl_stage_way;

/* A shape of micro-batches, at the stage's input. */
typedef struct fl_stage_shape_report {
    bool training;
    fl_stage_way way;
    int64_t samples, rows, longest; /* longest: rows that a sample may have */
    double calls_us, graphs_us;     /* of the device for a forward or a backward; 0: not measured */
} fl_stage_shape_report;

/* Since the stage was created. */
typedef struct fl_stage_graph_report {
    int64_t captures, launches; /* of a forward, or of a piece of backward */
    int64_t sum_launches;       /* of them, a whole backward with the sums of its buckets */
    int64_t calls;              /* forwards, backwards and pieces that ran call by call */
    int64_t nodes, bytes; /* of the device's graphs now: pieces of work; the driver's memory */
    int shapes, by_graph; /* of micro-batches: seen; those that graphs are faster for */
    bool given_up;        /* something failed: all runs call by call from then on */
    char reason[FL_STAGE_REASON_BYTES];
    fl_stage_shape_report shape[FL_STAGE_SHAPES]; /* [shapes] */
} fl_stage_graph_report;

/* A device without graphs: all zeros. */
void fl_stage_graphs(const fl_stage *stage, fl_stage_graph_report *report);

/* Most slots that held a micro-batch at once, and the most bytes one of them took: for tests. */
void fl_stage_peaks(const fl_stage *stage, int *n_slots, size_t *slot_bytes, size_t *scratch_bytes);

#endif
