/* BERT in 512-bit vectors, with the instruction that multiplies and adds four bytes in each lane. */
#include "bert_model.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(R2_PORTABLE)
/* For the whole file: vectors are taken apart before a function is inlined into one that could hold them. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni,prefer-vector-width=512")
#endif

#include "bert_wide.h"

#define RUN r2_bert_vnni
#include "bert_layers.h"

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
