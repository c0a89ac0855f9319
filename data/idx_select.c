#include "data/idx_select.h"

#include <string.h>

fl_status fl_idx_select_table(const int *classes, int n, int new_label[FL_IDX_LABELS])
{
    if (n < 1 || n > FL_IDX_LABELS) {
        return fl_fail(FL_EINVAL, "found %d classes, allowed: 1 to %d", n, FL_IDX_LABELS);
    }
    for (int label = 0; label < FL_IDX_LABELS; label++) {
        new_label[label] = FL_IDX_NOT_SELECTED;
    }
    for (int i = 0; i < n; i++) {
        if (classes[i] < 0 || classes[i] >= FL_IDX_LABELS) {
            return fl_fail(FL_EINVAL, "found class %d, allowed: 0 to %d", classes[i],
                           FL_IDX_LABELS - 1);
        }
        if (new_label[classes[i]] != FL_IDX_NOT_SELECTED) {
            return fl_fail(FL_EINVAL, "found class %d twice, allowed: each class once", classes[i]);
        }
        new_label[classes[i]] = i;
    }
    return FL_OK;
}

static fl_status check_each_occurs(const fl_idx *labels, const int new_label[FL_IDX_LABELS])
{
    bool occurs[FL_IDX_LABELS] = {false};
    int last = 0;
    for (size_t i = 0; i < labels->size_bytes; i++) {
        occurs[labels->bytes[i]] = true;
        last = labels->bytes[i] > last ? labels->bytes[i] : last;
    }
    for (int label = 0; label < FL_IDX_LABELS; label++) {
        if (new_label[label] != FL_IDX_NOT_SELECTED && !occurs[label]) {
            return fl_fail(FL_EINVAL, "found class %d, which has no image; the largest label is %d",
                           label, last);
        }
    }
    return FL_OK;
}

fl_status fl_idx_select(fl_idx *pixels, fl_idx *labels, const int new_label[FL_IDX_LABELS])
{
    if (labels->size_bytes == 0) {
        return fl_fail(FL_EINVAL, "classes cannot be selected without labels");
    }
    FL_TRY(check_each_occurs(labels, new_label));
    size_t image_bytes = pixels->size_bytes / labels->size_bytes, n = 0;
    for (size_t i = 0; i < labels->size_bytes; i++) {
        int label = new_label[labels->bytes[i]];
        if (label != FL_IDX_NOT_SELECTED) {
            memmove(pixels->bytes + n * image_bytes, pixels->bytes + i * image_bytes, image_bytes);
            labels->bytes[n++] = (uint8_t)label;
        }
    }
    pixels->dims[0] = labels->dims[0] = (int64_t)n;
    pixels->size_bytes = n * image_bytes;
    labels->size_bytes = n;
    return FL_OK;
}
