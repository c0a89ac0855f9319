#include "data/view.h"

#include "device/system/alloc.h"

#include <stdio.h>

void fl_view_destroy(void *self)
{
    fl_free(self);
}

fl_sample_id fl_view_own(const fl_dataset *dataset, fl_split split, int64_t id)
{
    const fl_view *view = dataset->self;
    bool is_view = dataset->ops->destroy == fl_view_destroy;
    return is_view ? view->own(view, split, id) : (fl_sample_id){split, id};
}

const fl_dataset *fl_view_of(const fl_dataset *dataset)
{
    const fl_view *view = dataset->self;
    return dataset->ops->destroy == fl_view_destroy ? &view->of : dataset;
}

const char *fl_sample_text(const fl_dataset *dataset, fl_split split, int64_t id,
                           char text[FL_SAMPLE_TEXT_BYTES])
{
    fl_sample_id own = fl_view_own(dataset, split, id);
    snprintf(text, FL_SAMPLE_TEXT_BYTES, "%s sample %lld",
             own.split == FL_TRAIN ? "training" : "test", (long long)own.id);
    return text;
}
