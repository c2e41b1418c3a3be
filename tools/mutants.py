#!/usr/bin/env python3
"""Puts one small fault after the other into a copy of the source and demands that a named test
notices it. `make mutants`, or:

    tools/mutants.py                 every fault; goes on where it was stopped
    tools/mutants.py --fresh         every fault, also those that were tried before
    tools/mutants.py --only NAME …   some of them
    tools/mutants.py --list          the faults
    tools/mutants.py --check         only looks whether each fault's line and test still exist

Copies, builds and a journal of outcomes live in build/mutants; the work tree is only read. When all
faults have been tried on the sources of one commit, results/mutants.json is written. Exits 1 when a
fault was missed or could not be tried."""

import argparse
import asyncio
import fcntl
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from typing import NamedTuple

import record
from measure import ROOT
from mutant_tree import Tree, Trouble, tail

FOLDER = ROOT / "build/mutants"
RESULTS = ROOT / "results/mutants.json"
TEST_SOURCE = re.compile(r"tests/(?:\w+/\w+_test\.cpp|cli/test_\w+\.py)")
IMPORT = re.compile(r"^(?:from|import) (test_\w+)", re.MULTILINE)


class Mutant(NamedTuple):
    name: str
    file: str  # below src/bmojo
    old: str  # part of one line; must occur once
    new: str
    test: str  # CTest name, then the gtest filter or the pytest function
    what: str


ORACLE = "nn/oracle Oracle.RandomLayers"
SPLIT = "nn/equivalence Equivalence.EveryTwoWaySplit"
STEP = "nn/equivalence Equivalence.OneTokenAtATime"
BATCH = "nn/equivalence Equivalence.BatchedIsAlone"
PACK = "nn/equivalence Equivalence.PackedIsSeparate"
NATIVE = "nn/native Native.AgreesWithTorchBitForBit"
STREAM = "nn/selection Selection.StreamingRuleWithTiesAndSpecialValues"
GRADIENT = "nn/gradient Gradient.EveryParameterAndTheCarriedState"
SCAN = "nn/gradient Gradient.LinearScan"
KERNEL = "nn/kernel Case/Kernel.EqualsItsReferenceAndSoDoItsGradients"
SCORE = "cli/hugging_face test_score_gives_the_logits_of_transformers"

# By file: a file is built again only when the next fault lies in another one.
MUTANTS = [
    # --- layout: who sees whom ---
    Mutant(
        "window-mask-off-by-one", "memory/visibility.h",
        "SeenBy seen_by(int64_t p) const { return {p, w}; }",
        "SeenBy seen_by(int64_t p) const { return {p, w + 1}; }",
        ORACLE, "a query sees w + 1 tokens",
    ),
    Mutant(
        "window-keys-short-by-one", "memory/visibility.h",
        "return {position < w ? 0 : position - w + 1, position + count - 1};",
        "return {position < w ? 0 : position - w + 2, position + count - 1};",
        ORACLE, "the oldest key of the window is not gathered",
    ),
    Mutant(
        "window-carried-shifted", "nn/layout.cpp",
        "const int64_t p = out.next.position[b] - rows_out + j;",
        "const int64_t p = out.next.position[b] - rows_out + j - 1;",
        SPLIT, "the carried window ends one token early",
    ),
    Mutant(
        "fading-chunk-shifted", "memory/visibility.h",
        "return {s - m_f, s - 1};",
        "return {s - m_f, s};",
        ORACLE, "the fading span of a chunk runs one token too far",
    ),
    Mutant(
        "fading-sliding-shifted", "memory/visibility.h",
        "return sliding ? SeenBy{p + w, m_f} : SeenBy{position, w};",
        "return sliding ? SeenBy{p + w + 1, m_f} : SeenBy{position, w};",
        ORACLE, "the sliding fading span lies one token too far back",
    ),
    Mutant(
        "fading-carried-chunk", "memory/visibility.h",
        "p - (s - m_f) : m_f + p - (s + w - collected());",
        "p - (s - m_f) : m_f + p - s;",
        SPLIT, "rows collected for the next chunk are found at the chunk's start, not its end",
    ),
    Mutant(
        "fading-carried-sliding", "memory/visibility.h",
        "if (sliding) return t - num_rows() + row;",
        "if (sliding) return t - num_rows() + row - 1;",
        SPLIT, "carried sliding rows are those of one token earlier",
    ),
    Mutant(
        "chunks-from-the-call", "memory/pieces.cpp",
        "const int64_t count = piece_length(p, document.end - i, window);",
        "const int64_t count = piece_length(i - document.column, document.end - i, window);",
        SPLIT, "the grid of chunks begins at the call instead of the document",
    ),
    Mutant(
        "document-ids-rise", "memory/pieces.cpp",
        "starts = id(i) != (first ? cursor.document[sequence] : id(i - 1));",
        "starts = id(i) > (first ? cursor.document[sequence] : id(i - 1));",
        PACK, "only a larger id starts a document",
    ),
    Mutant(
        "document-missed-between-calls", "memory/pieces.cpp",
        "starts = id(i) != (first ? cursor.document[sequence] : id(i - 1));",
        "starts = id(i) != id(first ? 0 : i - 1);",
        PACK, "a document that starts with a call is taken for the one before",
    ),
    # --- the engine without torch ---
    Mutant(
        "engine-freezes-early", "infer/state.cpp",
        "if (position == 0 || !memory::begins_chunk(position, shape.window.w)) return;",
        "if (position == 0 || !memory::begins_chunk(position + 1, shape.window.w)) return;",
        NATIVE, "the engine freezes its memories one token too early",
    ),
    Mutant(
        "caller-decides-how-to-round", "kernels/cpu.cpp",
        "FloatMode::FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(kFloatMode); }",
        "FloatMode::FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }",
        "kernels/kernels Cpu.TheCallersRoundingIsLeftOutsideAndRestored",
        "a kernel rounds as whoever calls it",
    ),
    Mutant(
        "caller-rounds-between-kernels", "infer/model.cpp",
        "const kernels::FloatMode mode;  // also for what is added between the kernels",
        "",
        "infer/equal_bits EqualBitsToo.WhateverTheCallersRoundingIs",
        "what the engine adds between two kernels is rounded as its caller rounds",
    ),
    Mutant(
        "counter-not-compared", "infer/snapshot.cpp",
        "base::require(snapshot.sampler.counter == static_cast<uint64_t>(position),",
        "base::require(snapshot.sampler.counter <= UINT64_MAX,",
        "infer/snapshot Snapshot.ACounterThatIsNotThePositionIsRefused",
        "a state whose next draw is not that of its position is taken",
    ),
    Mutant(
        "cut-prompt-without-logits", "eval/prompt.cpp",
        "if (end < prompt.ids.size() && !stops) continue;",
        "if (end < prompt.ids.size()) continue;",
        "cli/generate test_interrupted_while_it_reads_it_keeps_what_was_read",
        "a prompt that is interrupted leaves a state without logits",
    ),
    Mutant(
        "cut-prompt-taken-for-whole", "cli/generate_verb.cpp",
        "if (is_stopped())",
        "if (num_prompt < 0)",
        "cli/generate test_interrupted_while_it_reads_it_keeps_what_was_read",
        "how much of an interrupted prompt was read is not said",
    ),
    Mutant(
        "cut-prompt-remembered-whole", "eval/prompt.cpp",
        "remember(to->recent, prompts[i].ids.first(s.done[i]));",
        "remember(to->recent, prompts[i].ids);",
        "cli/generate test_interrupted_while_it_reads_it_keeps_what_was_read",
        "tokens of an interrupted prompt that were not read count as recent",
    ),
    Mutant(
        "answer-begins-a-text", "eval/greedy.cpp",
        'data::TextStream(tokenizer, "")',
        "data::TextStream(tokenizer)",
        "eval/suite_answer Greedy.ManyTextsAreWhatEachIsAlone",
        "the blank that a written answer begins with is left out",
    ),
    Mutant(
        "answers-of-an-id-mixed", "eval/suite_documents.cpp",
        "require(goes_on && last.question == input.substr(0, end),",
        "require(goes_on,",
        "cli/suite test_malformed_files_are_named_with_their_line",
        "two questions that have one id become one",
    ),
    Mutant(
        "stop-shown-in-part", "eval/generate.cpp",
        "release(held_.size() - longest_beginning());",
        "release(held_.size());",
        "eval/generate Generate.StopsAcrossTokensAndCharacters",
        "the beginning of a stop text is shown before the rest of it comes",
    ),
    Mutant(
        "stop-held-too-short", "eval/generate.cpp",
        "for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n)",
        "for (size_t n = std::min<size_t>(1, held_.size()); n > longest; --n)",
        "eval/generate Generate.StopsWhereTheTextHasThem",
        "of a stop text only the first byte is held back",
    ),
    Mutant(
        "engine-row-of-a-member", "infer/state.cpp",
        ": state.window.data() + now[i] % w * row;",
        ": state.window.data() + (now[i] + 1) % w * row;",
        NATIVE, "a member that enters the set is given its neighbour's row",
    ),
    Mutant(
        "engine-one-fading-token", "infer/layer.cpp",
        "if (shape.fading.m_f > 0) fade(c, w, shape);",
        "if (shape.fading.m_f > 1) fade(c, w, shape);",
        NATIVE, "a single fading token is never made",
    ),
    Mutant(
        "engine-states-last", "infer/layer.cpp",
        ".states_first = true},",
        ".states_first = false},",
        NATIVE,
        "the engine's A and h, which lie [N, E], are read as [E, N]",
    ),
    Mutant(
        "chunk-end-told-late", "infer/tell.cpp",
        "memory::begins_chunk(run.position + run.count(), shape.window.w)",
        "memory::begins_chunk(run.position, shape.window.w)",
        "nn/native_eval NativeEval.AChunkThatEndsIsToldAndWhoLeaves",
        "the first piece of a chunk is said to end it",
    ),
    Mutant(
        "all-seen-have-left", "eval/observer.h",
        "std::ranges::set_difference(seen, kept, std::back_inserter(out));",
        "std::ranges::copy(seen, std::back_inserter(out));",
        "nn/native_eval NativeEval.AChunkThatEndsIsToldAndWhoLeaves",
        "every member is said to leave when a chunk ends",
    ),
    Mutant(
        "engine-ring-not-split", "infer/state.cpp",
        "const int64_t count = std::min(span.count(), rows - slot);",
        "const int64_t count = span.count();",
        "infer/equal_bits Draws/EqualBits.WholeIsSplitIsStepsIsBatched/0",
        "a window that runs over the end of its ring is read beyond it",
    ),
    Mutant(
        "engine-residual-order", "infer/layer.cpp",
        "add(change, ws.y.data(), c.T * D);",
        "add(x, ws.y.data(), c.T * D);",
        NATIVE, "the residual is (x + y) + W_o a instead of x + (W_o a + y)",
    ),
    # --- layer ---
    Mutant(
        "b-and-c-swapped", "nn/layer.cpp",
        "const auto dbc = linear_map(x_bar, w_.x).split_with_sizes({R, N, N}, -1);",
        "auto dbc = linear_map(x_bar, w_.x).split_with_sizes({R, N, N}, -1);"
        " std::swap(dbc[1], dbc[2]);",
        ORACLE, "x_proj read in the order Δ, C, B",
    ),
    Mutant(
        "a-sign", "nn/layer.cpp",
        "A = negative_exp(w_.a_log),",
        "A = -negative_exp(w_.a_log),",
        ORACLE, "A = +exp(A_log): the state grows",
    ),
    Mutant(
        "predictor-decay-off-by-one", "kernels/predictor_weights.cpp",
        "c.push_back(power);",
        "c.push_back(power * gamma);",
        ORACLE, "c_i = γ^i / Σ instead of γ^(i−1) / Σ",
    ),
    Mutant(
        "innovation-detached", "nn/layer.cpp",
        "eidetic_bias({.innovation = pick(all.innovation, layout.piece_sequence, chosen.visible),",
        "eidetic_bias({.innovation = pick(all.innovation.detach(), layout.piece_sequence, chosen.visible),",
        GRADIENT, "no gradient passes from the bias through ε",
    ),
    Mutant(
        "member-seen-twice", "nn/layer.cpp",
        "(seen_from - begin).clamp_min(0),",
        "(seen_from - w - begin).clamp_min(0),",
        "nn/special_cases SpecialCases.RoomForAllIsFullAttention",
        "a member of M that is still in the window is seen twice",
    ),
    Mutant(
        "member-seen-late", "nn/layer.cpp",
        "(seen_from - begin).clamp_min(0),",
        "(seen_from + 1 - begin).clamp_min(0),",
        "nn/oracle Oracle.InterleavedForm",
        "a member of M is hidden for one step after it leaves the window",
    ),
    Mutant(
        "eidetic-rows-detached", "nn/layer.cpp",
        "parts.push_back(state.eidetic.flatten(0, 1));",
        "parts.push_back(state.eidetic.flatten(0, 1).detach());",
        GRADIENT, "no gradient passes through the keys and values kept from an earlier call",
    ),
    Mutant(
        "running-carried-as-frozen", "nn/layer.cpp",
        "out.frozen = set(chosen.frozen);",
        "out.frozen = set(chosen.running);",
        SPLIT, "the running set is carried in place of the frozen one",
    ),
    Mutant(
        "fading-norm-dropped", "nn/layer.cpp",
        "rms_norm(take_rows(y.flatten(0, 1), layout.fading_token), w_.fading_norm,"
        " config_.norm_eps);",
        "take_rows(y.flatten(0, 1), layout.fading_token);",
        ORACLE, "fading keys from y without its norm",
    ),
    Mutant(
        "fading-untied-ignored", "nn/layer.cpp",
        "if (config.fading_tied) {",
        "if (config.fading_tied || true) {",
        ORACLE, "fading keys use W_k also with `fading_tied = false`",
    ),
    Mutant(
        "rotary-query-off-by-one", "nn/layer.cpp",
        "rotate(heads(q), layout.angles) : heads(q)",
        "rotate(heads(q), rotary_angles(layout.positions + 1, config_.head_size, "
        "config_.rope_theta, q.scalar_type())) : heads(q)",
        ORACLE, "queries turned by t + 1, keys by t",
    ),
    Mutant(
        "rotary-fading-off-by-one", "nn/layer.cpp",
        "return key_value(kv[0], kv[1], angles);",
        "return key_value(kv[0], kv[1], config_.rope_theta == 0 ? angles : "
        "rotary_angles(take_rows(layout.positions.flatten(), layout.fading_token) + 1, "
        "config_.head_size, config_.rope_theta, y_f.scalar_type()));",
        ORACLE, "the fading key of y_p turned by p + 1",
    ),
    Mutant(
        "residual-dropped", "nn/layer.cpp",
        "return kind_ == model::LayerKind::bmojo && config_.fading_residual ? change + y : change;",
        "return change;",
        "nn/special_cases SpecialCases.SsmAloneIsMamba",
        "`fading_residual` adds nothing",
    ),
    # --- references: what the layer is made of ---
    Mutant(
        "tail-off-by-one", "nn/ops/history.cpp",
        "return source.narrow(1, rows - depth, depth).clone();",
        "return source.narrow(1, rows - depth - 1, depth).clone();",
        SPLIT, "convolution and predictor carry inputs of one token earlier",
    ),
    Mutant(
        "tail-of-padding", "nn/ops/history.cpp",
        "index.push_back(b * rows + lengths[static_cast<size_t>(b)] + j);",
        "index.push_back(b * rows + rows - depth + j);",
        BATCH, "convolution and predictor carry padding",
    ),
    Mutant(
        "conv-not-reset", "nn/ops/history.cpp",
        "return i == 0 ? before : before.masked_fill((positions < i).unsqueeze(2), 0);",
        "return before;",
        PACK, "convolution and predictor read across a document's start",
    ),
    Mutant(
        "conv-taps-reversed", "nn/ops/causal_conv.cpp",
        "sum = sum + tap(i) * shifted(source, i, c.positions);",
        "sum = sum + tap(K - i) * shifted(source, i, c.positions);",
        ORACLE, "the convolution's past taps in reverse order",
    ),
    Mutant(
        "conv-bias-dropped", "nn/ops/causal_conv.cpp",
        "if (c.bias.defined()) sum = sum + c.bias;",
        "",
        ORACLE, "no bias on the convolution",
    ),
    Mutant(
        "softplus-dropped", "nn/ops/selective_scan.cpp",
        "auto delta = at::softplus(s.dt.to(wide) + s.dt_bias);",
        "auto delta = s.dt.to(wide) + s.dt_bias;",
        ORACLE, "Δ without softplus",
    ),
    Mutant(
        "d-skip-dropped", "nn/ops/selective_scan.cpp",
        ".squeeze(3) + s.D * x;",
        ".squeeze(3);",
        ORACLE, "no D_skip ⊙ x̄",
    ),
    Mutant(
        "padding-in-ssm-state", "nn/ops/selective_scan.cpp",
        "delta = delta.masked_fill(padding, 0);",
        "",
        BATCH, "padding moves h",
    ),
    Mutant(
        "ssm-not-reset", "nn/ops/selective_scan.cpp",
        "const auto starts = s.starts.unsqueeze(2);",
        "const auto starts = at::zeros_like(s.starts.unsqueeze(2));",
        PACK, "h of the last document reaches the next",
    ),
    Mutant(
        "scan-rest-from-the-start", "nn/ops/selective_scan.cpp",
        "scan_blocks(rest(a), rest(b), h.select(1, whole - 1), rest(h));",
        "scan_blocks(rest(a), rest(b), h0, rest(h));",
        SCAN, "the last, shorter block starts from the first state",
    ),
    Mutant(
        "scan-gradient-of-initial-state", "nn/ops/selective_scan.cpp",
        "return {g * h_before, g, a.select(1, 0) * g.select(1, 0)};",
        "return {g * h_before, g, g.select(1, 0)};",
        SCAN, "the gradient of h_{−1} lacks the first decay",
    ),
    Mutant(
        "scan-gradient-decay", "nn/ops/selective_scan.cpp",
        "at::cat({first, a.narrow(1, 1, L - 1).flip(1)}, 1);",
        "at::cat({first, a.narrow(1, 0, L - 1).flip(1)}, 1);",
        SCAN, "the backward scan decays by a_t instead of a_{t+1}",
    ),
    Mutant(
        "predictor-not-reset", "nn/ops/innovation.cpp",
        "* widen(shifted(source, i, in.positions));",
        "* widen(source.narrow(1, k - i, in.y.size(1)));",
        PACK, "the predictor alone reads across a document's start",
    ),
    Mutant(
        "predictor-span-short", "nn/ops/innovation.cpp",
        "for (int64_t i = 1; i <= k; ++i)",
        "for (int64_t i = 1; i < k; ++i)",
        ORACLE, "the predictor leaves out its oldest output",
    ),
    Mutant(
        "predictor-rescaled", "nn/ops/innovation.cpp",
        "* widen(shifted(source, i, in.positions));",
        "* widen(shifted(source, i, in.positions)) *"
        " (static_cast<double>(k) / in.positions.clamp(1, k)).unsqueeze(2);",
        ORACLE, "c rescaled where a document has fewer than k outputs",
    ),
    Mutant(
        "innovation-sum", "nn/ops/innovation.cpp",
        "safe_sqrt(prediction_error(in).square().mean(-1))",
        "safe_sqrt(prediction_error(in).square().sum(-1))",
        ORACLE, "ε is a sum over channels instead of a mean",
    ),
    Mutant(
        "innovation-without-root", "nn/ops/innovation.cpp",
        "safe_sqrt(prediction_error(in).square().mean(-1))",
        "prediction_error(in).square().mean(-1)",
        ORACLE, "ε is a mean square without its root",
    ),
    Mutant(
        "innovation-gradient-at-zero", "nn/ops/innovation.cpp",
        "return x.masked_fill(zero, 1).sqrt().masked_fill(zero, 0);",
        "return x.sqrt();",
        "nn/model Model.ConstantOutputsHaveFiniteGradients",
        "the root's gradient at ε = 0 is infinite",
    ),
    Mutant(
        "heads-strided", "nn/ops/memory_attention.cpp",
        ".view({P, Q, G, H / G, d})",
        ".view({P, Q, H / G, G, d}).transpose(2, 3)",
        ORACLE, "query head h reads key head h mod G",
    ),
    Mutant(
        "scores-not-scaled", "nn/ops/memory_attention.cpp",
        "scores = scores / std::sqrt(static_cast<double>(d));",
        "",
        "nn/special_cases SpecialCases.SlidingWindowAndFullAttention",
        "scores not divided by √d",
    ),
    Mutant(
        "unused-places-masked", "nn/ops/memory_attention.cpp",
        "(~(seen | unused)).repeat(",
        "(~seen).repeat(",
        GRADIENT, "places without a query have an empty softmax, whose NaN reaches gradients",
    ),
    Mutant(
        "rotary-interleaved", "nn/ops/rotary.cpp",
        "const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);",
        "const auto a = x.slice(-1, 0, 2 * half, 2), b = x.slice(-1, 1, 2 * half, 2);",
        ORACLE, "channel 2i is paired with 2i + 1",
    ),
    Mutant(
        "rotary-frequency", "nn/ops/rotary.cpp",
        "at::arange(half, options) / -static_cast<double>(half));",
        "at::arange(half, options) / -static_cast<double>(2 * half));",
        ORACLE, "angles fall half as fast: θ^(−i / d)",
    ),
    Mutant(
        "mlp-activation", "nn/ops/swiglu.cpp",
        "return at::silu(gate) * up;",
        "return gate * at::silu(up);",
        ORACLE, "silu on W_up instead of W_gate",
    ),
    Mutant(
        "norm-epsilon-outside", "nn/ops/norm.cpp",
        "(wide.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();",
        "(wide.square().mean(-1, /*keepdim=*/true).sqrt() + eps).reciprocal();",
        ORACLE, "norm_eps added outside the root",
    ),
    Mutant(
        "sums-in-bf16", "nn/ops/types.h",
        "return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;",
        "return x.scalar_type();",
        "nn/model Model.FloatAndBfloat16",
        "recurrence and ε in the type of the weights",
    ),
    # --- what is added to the scores of eidetic keys ---
    Mutant(
        "bias-without-beta", "nn/ops/eidetic_bias.cpp",
        "const auto bias = widen(in.beta) * (",
        "const auto bias = (",
        ORACLE, "innovation bias without β",
    ),
    Mutant(
        "bias-epsilon", "nn/ops/eidetic_bias.cpp",
        "(in.innovation + 1e-6)",
        "(in.innovation + 1e-5)",
        ORACLE, "innovation bias log(ε + 1e−5)",
    ),
    Mutant(
        "bias-keeps-its-scale", "nn/ops/eidetic_bias.cpp",
        "(log_innovation - mean);",
        "log_innovation;",
        ORACLE, "innovation bias by log ε, not over its mean",
    ),
    Mutant(
        "cut-mean-of-all", "nn/ops/eidetic_bias.cpp",
        "kept = cut.kept;",
        "kept = in.there;",
        "nn/oracle Oracle.SoftCuts", "with a soft cut the bias is over the mean of all places",
    ),
    Mutant(
        "cut-at-the-last-kept", "nn/ops/eidetic_bias.cpp",
        "(sorted.narrow(1, places - 1, 1) + sorted.narrow(1, places, 1)) / 2;",
        "sorted.narrow(1, places - 1, 1);",
        "nn/soft_cut SoftCut.WhatIsAdded", "the cut lies on the last that is kept",
    ),
    Mutant(
        "cut-level-with-gradient", "nn/ops/eidetic_bias.cpp",
        "const auto x = log_innovation.detach();",
        "const auto x = log_innovation;",
        "nn/soft_cut SoftCut.GradientHoldsTheLevelFixed", "a gradient moves the cut itself",
    ),
    Mutant(
        "cut-level-never-moves", "nn/ops/eidetic_bias.cpp",
        "if (in.cut.level_moves) level",
        "if (false) level",
        "nn/soft_cut SoftCut.MovingLevelIsFreeOfScale",
        "the level of the cut has no gradient where it should follow the mean",
    ),
    Mutant(
        "cut-level-moves-with-empty-places", "nn/ops/eidetic_bias.cpp",
        "const auto counted = there & log_innovation.detach().isfinite();",
        "const auto counted = log_innovation.detach().isfinite();",
        "nn/soft_cut SoftCut.MovingLevelIsFreeOfScale",
        "empty places count in the mean that the cut's level follows",
    ),
    Mutant(
        "cut-when-two-are-left-out", "nn/ops/eidetic_bias.cpp",
        "there.sum(1, /*keepdim=*/true) > places};",
        "there.sum(1, /*keepdim=*/true) > places + 1};",
        "nn/soft_cut SoftCut.WhatIsAdded", "a set with one member too many is not cut",
    ),
    # --- selection: by tensors, then in one pass ---
    Mutant(
        "ties-favour-later", "nn/selection.cpp",
        "at::argsort(rank.gather(1, candidates), /*stable=*/true, 1, /*descending=*/true);",
        "at::argsort(rank.gather(1, candidates), true, 1, /*descending=*/false).flip(1);",
        STREAM, "of two equal ε the later token stays",
    ),
    Mutant(
        "nan-ranks-highest", "nn/selection.cpp",
        "by_rule.masked_fill(by_rule != by_rule, -1)",
        "by_rule",
        STREAM, "a NaN crowds out every number, as sorting has it",
    ),
    Mutant(
        "nan-ranks-as-zero", "nn/selection.cpp",
        "by_rule.masked_fill(by_rule != by_rule, -1)",
        "by_rule.masked_fill(by_rule != by_rule, 0)",
        STREAM, "a NaN ties with ε = 0",
    ),
    Mutant(
        "recent-is-first", "memory/eidetic_sets.cpp",
        'if (rule == "recent") return static_cast<double>(position);',
        'if (rule == "recent") return 0;',
        "nn/oracle Oracle.EveryRule", "eidetic_rule recent keeps the first",
    ),
    Mutant(
        "random-by-position-alone", "memory/eidetic_sets.cpp",
        "static_cast<uint64_t>(token)})",
        "uint64_t{0}})",
        "train/memory Memory.RandomIsTheSameInEveryCut",
        "eidetic_rule random does not depend on the token",
    ),
    Mutant(
        "oracle-forgets-the-past", "nn/selection.cpp",
        "if (position < piece.position + piece.count && std::ssize(kept) < m) kept.push_back(position);",
        "if (position >= piece.position && position < piece.position + piece.count) kept.push_back(position);",
        "train/memory Memory.HeldCountsAnswersInTheSet", "an oracle keeps one chunk's tokens",
    ),
    Mutant(
        "members-by-rank", "nn/selection.cpp",
        "return kept.gather(1, by_time);",
        "return kept;",
        STREAM, "M is kept by ε instead of by time",
    ),
    Mutant(
        "given-eidetic-not-reset", "nn/selection.cpp",
        "running = choose(waves.fresh[i], empty, running);",
        "",
        "nn/equivalence Equivalence.GivenSelectionIsFollowedByTheReference",
        "with a given selection M of the last document reaches the next",
    ),
    Mutant(
        "given-frozen-thawed-by-a-call", "nn/selection.cpp",
        "frozen = choose(active & ~waves.inside[i], running, frozen);",
        "frozen = choose(active, running, frozen);",
        "nn/equivalence Equivalence.GivenSelectionIsFollowedByTheReference",
        "with a given selection a call inside a chunk sees the running set",
    ),
    Mutant(
        "given-selection-ignored", "nn/selection.cpp",
        "const auto next = given.defined()", "const auto next = false",
        "nn/equivalence Equivalence.GivenSelectionIsUsed",
        "other devices make their own choice where one is given",
    ),
    Mutant(
        "given-selection-unchecked", "nn/selection.cpp",
        "base::require(match.any(2).all().item<bool>(),",
        "base::require(true,",
        "nn/equivalence Equivalence.GivenSelectionIsUsed",
        "a given selection may name tokens that are gone",
    ),
    Mutant(
        "running-row-off-by-one", "nn/selection.cpp",
        "const auto in_window = pool.window + b * W + position - (start - W);",
        "const auto in_window = pool.window + b * W + position - (start - W) - 1;",
        STEP, "a member that entered in this chunk is read one row too early",
    ),
    Mutant(
        "eidetic-not-reset", "memory/eidetic_sets.h",
        "if (position == 0) running.clear();",
        "",
        PACK, "M of the last document reaches the next",
    ),
    Mutant(
        "frozen-thawed-by-a-call", "memory/eidetic_sets.h",
        "if (!begins_chunk(position, window)) return false;",
        "",
        SPLIT, "a call that begins inside a chunk sees the running set",
    ),
    Mutant(
        "one-pass-ties-favour-later", "kernels/selection.cpp",
        "return a != b ? a > b : i < j;",
        "return a != b ? a > b : i > j;",
        STREAM, "of two equal ε the later token stays",
    ),
    Mutant(
        "one-pass-nan-ranks-as-zero", "kernels/selection.cpp",
        "return std::isnan(x) ? -1 : x;",
        "return std::isnan(x) ? 0 : x;",
        STREAM, "a NaN ties with ε = 0",
    ),
    # --- kernels: the same in fp32 ---
    Mutant(
        "scan-kernel-not-reset", "kernels/selective_scan.cpp",
        "if (g.starts(t)) std::fill(h, h + N * kLanes, 0.0f);",
        "",
        f"{KERNEL}/selective_scan_odd_documents", "h of the last document reaches the next",
    ),
    Mutant(
        "scan-kernel-dt-gradient", "kernels/selective_scan.cpp",
        "hn::Mul(of(a.grad_delta), all(0.693147181f))",
        "of(a.grad_delta)",
        f"{KERNEL}/selective_scan_odd_b", "the gradient of Δ is by log2(e) A instead of A",
    ),
    Mutant(
        "scan-kernel-padding", "kernels/selective_scan.cpp",
        "std::fill_n(y + g.token(t) * s.E + g.first, g.count, 0.0f);",
        "std::fill_n(y + g.token(t) * s.E + g.first, g.count, 1.0f);",
        f"{KERNEL}/selective_scan_odd_ragged", "y is not 0 behind a row's end",
    ),
    Mutant(
        "scan-kernel-rounds-the-decay", "kernels/selective_scan.cpp",
        "const V state = hn::MulAdd(power, before, change);",
        "const V state = hn::MulAdd(hn::MulAdd(power, rest, power), before,"
        " hn::Mul(delta_x, all(in[n])));",
        "nn/selective_scan SelectiveScan.StaysExactOverAHundredThousandTokens",
        "exp(Δ A) is rounded before it meets h, and the error adds up",
    ),
    Mutant(
        "scan-kernel-first-carried", "kernels/selective_scan.cpp",
        "to_lanes(g, s.h0, g.sequence, 1, h.get());",
        "to_lanes(g, s.h0, 0, 1, h.get());",
        "nn/fused_equivalence FusedEquivalence.BatchedIsAlone",
        "every sequence goes on from the state of the first",
    ),
    Mutant(
        "attention-kernel-mask", "kernels/memory_attention.cpp",
        "const bool partly = from > low || until <= high;",
        "const bool partly = from > low || until < high;",
        f"{KERNEL}/memory_attention_window",
        "a tile's last query sees a key that ends just before it",
    ),
    Mutant(
        "attention-kernel-nan-spreads", "kernels/memory_attention.cpp",
        "if (finite || tile.query(0) == tile.query(tile.count - 1)) return;",
        "if (finite || tile.count > 0) return;",
        "nn/memory_attention MemoryAttention.OnlyQueriesThatSeeANaNOrInfinityAreSpoiled",
        "a NaN spoils the queries that share a tile with those that see it",
    ),
    Mutant(
        "attention-kernel-not-scaled", "kernels/memory_attention.cpp",
        "const V scale = all(1.0f / std::sqrt(static_cast<float>(m.head)));",
        "const V scale = all(1.0f);",
        f"{KERNEL}/memory_attention_odd_c", "scores not divided by √d",
    ),
    Mutant(
        "attention-kernel-block-forgets", "kernels/memory_attention.cpp",
        "V sum = hn::Load(d, w.sum + n);",
        "V sum = zero();",
        f"{KERNEL}/memory_attention_odd_blocks", "the sum of weights is that of the last block",
    ),
    Mutant(
        "attention-kernel-block-shows", "kernels/memory_attention.cpp",
        "hn::Store(sum, d, w.sum + n);",
        "hn::Store(hn::Add(hn::Load(d, w.sum + n), hn::Sub(sum, hn::Load(d, w.sum + n))), d, "
        "w.sum + n);",
        "nn/memory_attention MemoryAttention.BlocksOfKeysDoNotShowInTheBits",
        "a block's weights are summed apart: block borders show in the last bits",
    ),
    Mutant(
        "attention-kernel-block-starts-anew", "kernels/memory_attention.cpp",
        "fill_scores(tile, w, first, count, w.scores.get());",
        "fill_scores(tile, w, 0, count, w.scores.get());",
        f"{KERNEL}/memory_attention_odd_blocks",
        "in the backward pass every block has the scores of the first",
    ),
    Mutant(
        "attention-kernel-packs-keys-twice", "kernels/memory_attention.cpp",
        "std::copy_n(row + m.num_kv_heads * m.head, m.head, to + m.head);",
        "std::copy_n(row, m.head, to + m.head);",
        f"{KERNEL}/memory_attention_full", "a packed value is its key",
    ),
    Mutant(
        "attention-kernel-bias-gradient", "kernels/memory_attention.cpp",
        "n < tile.count; ++n) bias[j] += g[n];",
        "n < tile.count; ++n) bias[j] += 0 * g[n];",
        f"{KERNEL}/memory_attention_eidetic", "the bias has no gradient",
    ),
    Mutant(
        "attention-kernel-last-piece-alone", "kernels/memory_attention.cpp",
        "for (int64_t i = 0; i < m.head; ++i) to[i] += sum[i];",
        "for (int64_t i = 0; i < m.head; ++i) to[i] = sum[i];",
        f"{KERNEL}/memory_attention_window",
        "a row that several pieces read has the gradient of the last one",
    ),
    Mutant(
        "loss-kernel-target", "kernels/cross_entropy.cpp",
        "row[target[i]] -= scale;",
        "",
        f"{KERNEL}/linear_cross_entropy_odd_b", "the gradient is softmax, the target not taken off",
    ),
    Mutant(
        "loss-gradient-from-above", "nn/ops/linear_cross_entropy.cpp",
        "return gradient.defined() && factor != 1 ? gradient.mul_(factor) : gradient;",
        "return gradient.defined() && factor == 0 ? gradient.mul_(factor) : gradient;",
        "nn/linear_cross_entropy LinearCrossEntropy.ScalesByTheGradientFromAboveOnce",
        "the gradient from above is taken for 1",
    ),
    Mutant(
        "norm-kernel-gain-gradient", "kernels/norm.cpp",
        "for (int64_t block = 0; block < blocks; ++block)",
        "for (int64_t block = 0; block < 1; ++block)",
        f"{KERNEL}/rms_norm_block_and_one", "the gain has the gradient of the first 64 rows",
    ),
    Mutant(
        "swiglu-kernel-up-gradient", "kernels/swiglu.cpp",
        "store(hn::Mul(g, hn::Mul(x, open)), to_up + i, count);",
        "store(hn::Mul(g, open), to_up + i, count);",
        f"{KERNEL}/swiglu_odd_c", "the gradient of W_up u is by σ instead of silu",
    ),
    Mutant(
        "rotary-kernel-gradient", "nn/ops/rotary.cpp",
        "turned(grads[0], saved[0], saved[1], /*back=*/true)",
        "turned(grads[0], saved[0], saved[1], /*back=*/false)",
        f"{KERNEL}/rotary_odd_b", "gradients are turned forwards",
    ),
    Mutant(
        "bias-kernel-mean-of-places", "kernels/eidetic_bias.cpp",
        "if (!there || there[j]) {",
        "if (!there || j >= 0) {",
        "kernels/arithmetic EideticBias.EmptyPlacesLeaveNoTrace",
        "empty places count in the bias's mean",
    ),
    Mutant(
        "bias-kernel-gradient-of-mean", "kernels/eidetic_bias.cpp",
        "in.beta * (g[j] - mean) /",
        "in.beta * g[j] /",
        "kernels/arithmetic EideticBias.GradientIsTheSlope", "no gradient passes through the bias's mean",
    ),
    Mutant(
        "decay-kernel-gradient", "nn/ops/negative_exp.cpp",
        "grads[0] * context->get_saved_variables()[0]",
        "grads[0]",
        "nn/fused Fused.LayerEqualsItsReferences", "A_log has the gradient of A",
    ),
    Mutant(
        "sample-penalty-of-negatives", "kernels/sample.cpp",
        "x > 0 ? x / factor : x * factor;",
        "x / factor;",
        "kernels/arithmetic Sample.PenaltyLowersARecentTokenOnceWhateverItsSign",
        "a repetition is rewarded where its logit is negative",
    ),
    Mutant(
        "top-p-drops-the-last", "kernels/sample.cpp",
        "std::erase_if(s.kept, [&](int64_t id) { return before(last, id); });",
        "std::erase_if(s.kept, [&](int64_t id) { return !before(id, last); });",
        "kernels/arithmetic Sample.IsItsDefinition",
        "`--top-p` leaves out the token that reaches the mass",
    ),
    Mutant(
        "logits-by-torch", "nn/model.cpp",
        "return linear_map(hidden, head());",
        "return at::linear(hidden, head());",
        "nn/model Model.LogitsAreTheProductOfEveryMap", "logits do not take our product",
    ),
    Mutant(
        "innovation-kernel-span-short", "kernels/innovation.cpp",
        "for (int64_t i = 1; i < reads.count; ++i)",
        "for (int64_t i = 1; i + 1 < reads.count; ++i)",
        f"{KERNEL}/innovation_odd_b", "the predictor leaves out its oldest output",
    ),
    Mutant(
        "conv-kernel-not-reset", "kernels/history.h",
        "return std::min(depth, position(b, t));",
        "return std::min(depth, depth + position(b, t));",
        f"{KERNEL}/causal_conv1d_silu_odd_documents",
        "convolution and predictor read across a document's start",
    ),
    Mutant(
        "tail-kernel-of-padding", "kernels/history.h",
        "std::copy_n(row(b, length(b) - depth + j), C,",
        "std::copy_n(row(b, L - depth + j), C,",
        "nn/causal_conv CausalConv.RaggedRowsAreTheRowsAlone",
        "convolution and predictor carry padding",
    ),
    Mutant(
        "history-kernel-gradient", "kernels/history-inl.h",
        "if (h.position(b, t + i) >= i) readers[num_readers++] = {i, d(t + i)};",
        "if (h.position(b, t + i) >= 0) readers[num_readers++] = {i, d(t + i)};",
        f"{KERNEL}/innovation_odd_documents", "gradients reach back across a document's start",
    ),
    Mutant(
        "history-tail-reversed", "kernels/history.h", "tail + ((b + 1) * depth + t) * C;",
        "tail + (b * depth - t - 1) * C;",
        "nn/fused_equivalence FusedEquivalence.EveryTwoWaySplit",
        "what came before a call is read with the oldest token last",
    ),
    Mutant(
        "history-tail-of-padding", "kernels/history.h",
        "std::copy_n(row(b, length(b) - depth + j), C,", "std::copy_n(row(b, L - depth + j), C,",
        "nn/fused_equivalence FusedEquivalence.BatchedIsAlone",
        "a short row hands on its padding instead of its last tokens",
    ),
    Mutant(
        "history-across-documents", "kernels/history.h", "std::min(depth, position(b, t));",
        "std::min(depth, position(b, t) + 1);",
        "nn/fused_equivalence FusedEquivalence.PackedIsSeparate",
        "a document's first token reads the last of the one before",
    ),
    Mutant(
        "tasks-run-twice", "nn/ops/parallel.cpp",
        "for (int64_t i = next++; i < n; i = next++) task(i);",
        "for (int64_t i = next++; i < n; i = next++) task(i), task(i);",
        "nn/kernel Case/Kernel.SameBitsForEveryThreadCountAndInstructionSet/rms_norm_block_and_one",
        "two threads do every task twice, and sums are doubled",
    ),
    Mutant(
        "recompute-drops-the-state", "nn/recompute.cpp",
        "if (again[i].requires_grad() && grads[i].defined()) {",
        "if (i == 0 && again[i].requires_grad() && grads[i].defined()) {",
        "nn/gradient Gradient.RecomputedLayersGiveTheSame",
        "a recomputed layer passes back no gradient from its state",
    ),
    # --- model ---
    Mutant(
        "head-always-tied", "nn/model.cpp",
        'parameter(config_.tied_embeddings ? "embedding.weight" : "head.weight");',
        'parameter("embedding.weight");',
        NATIVE, "logits by the embedding also where there is a head",
    ),
    Mutant(
        "bf16-file-as-f16", "nn/model.cpp",
        "dtype == model::Dtype::bf16 ? at::kBFloat16",
        "dtype == model::Dtype::f16 ? at::kBFloat16",
        "nn/native Native.AgreesWithTorchsOwnProductsToRounding",
        "the two 16-bit types of a file confused",
    ),
    Mutant(
        "detach-leaves-the-ssm", "nn/model.cpp",
        "[](const char*, at::Tensor& x) {",
        "[](const std::string& name, at::Tensor& x) { if (name == \"ssm\") return;",
        "nn/gradient Gradient.DetachCutsTheWholeState",
        "truncated back-propagation runs on through h",
    ),
    # --- configs and weights ---
    Mutant(
        "unknown-field-accepted", "model/config.cpp",
        'base::require(field != nullptr, "{}: field {} is not known;',
        'if (field == nullptr) continue; base::require(true, "{}: field {} is not known;',
        "cli/malformed test_malformed_config_files", "a misspelt field of config.json is ignored",
    ),
    Mutant(
        "unused-sizes-unchecked", "model/config.cpp",
        "  validate_attention(c);",
        "  if (c.has_attention()) validate_attention(c);",
        "model/config All/WrongConfig.IsRefusedByName/35",
        "heads of a model without attention may be so many that a count overflows",
    ),
    Mutant(
        "missing-field-accepted", "model/config.cpp",
        'base::require(json.contains(field.name), "{}: field {} is missing; {}",',
        'base::require(true, "{}: field {} is missing; {}",',
        "cli/malformed test_malformed_config_files", "a field left out gets its default",
    ),
    Mutant(
        "paper-with-residual", "model/presets.cpp",
        'c.fading_residual = family != "bmojo-paper";', "c.fading_residual = true;",
        "model/config Config.ThePaperIsOursWithoutItsTwoAdditions",
        "the paper's presets add y to the residual stream",
    ),
    Mutant(
        "sliding-memory-one-more", "memory/visibility.h",
        "return m_f == 0 ? 0 : sliding ? w + m_f - 1 : m_f + collected();",
        "return m_f == 0 ? 0 : sliding ? w + m_f : m_f + collected();",
        "memory/state_size Config.MemoryBytesCountWhatAStateHolds",
        "one fading row too many is counted",
    ),
    Mutant(
        "residual-init-not-scaled", "model/init.cpp",
        "symmetric(1 / std::sqrt(fan_in * static_cast<double>(num_residual_additions(config))));",
        "symmetric(1 / std::sqrt(fan_in));",
        "nn/model Model.FreshWeightsAreMambasAndGpt2s",
        "fresh weights ignore how many terms the residual stream sums",
    ),
    Mutant(
        "step-size-init", "model/init.cpp",
        "return dt + std::log(-std::expm1(-dt));",
        "return std::log(dt);",
        "model/init Init.StepSizesAreLogUniform",
        "b_Δ is log Δ instead of the inverse of softplus",
    ),
    # --- files ---
    Mutant(
        "bf16-read-as-f16", "model/dtype.cpp",
        "return convert<uint16_t, float, base::float_of_bf16>(",
        "return convert<uint16_t, float, base::float_of_f16>(",
        "model/dtype Conversion.EveryBf16Pattern", "conversion reads bf16 as f16",
    ),
    Mutant(
        "bf16-truncates", "base/bf16.h",
        "(bits + 0x7fff + ((bits >> 16) & 1)) >> 16;",
        "bits >> 16;",
        "model/dtype Conversion.EveryBf16Rounding", "bf16 is cut off instead of rounded to even",
    ),
    Mutant(
        "overlap-accepted", "model/safetensors_header.cpp",
        "if (tensor.begin != end) {",
        "if (tensor.begin > end) {",
        "model/safetensors_malformed MalformedSafetensors.Offsets",
        "two tensors of a file may share bytes",
    ),
    Mutant(
        "digest-not-verified", "cli/inspect_verb.cpp",
        'base::require(computed == stored, "{}: digest must be',
        'base::require(computed.size() == stored.size(), "{}: digest must be',
        "cli/verbs test_verify_finds_a_flipped_byte", "`--verify` accepts a damaged file",
    ),
    Mutant(
        "index-leads-out", "model/checkpoint.cpp",
        "base::require(base::is_plain_name(name),",
        "base::require(!name.empty(),",
        "cli/malformed test_malformed_folders", "an index may name files outside the folder",
    ),
    Mutant(
        "file-not-flushed", "base/file.cpp",
        "if (changed(FileChange::flush, temporary_, [&] { return ::fsync(descriptor_); }) != 0)",
        "if (false)",
        "base/file_change FileChange.AFileIsFlushedThenRenamedThenItsFolderFlushed",
        "a file gets its name before its bytes are on the disk",
    ),
    Mutant(
        "file-name-not-flushed", "base/file.cpp",
        "  sync_path(folder_of(path_));",
        "",
        "base/file_change FileChange.AFileIsFlushedThenRenamedThenItsFolderFlushed",
        "a power cut may undo the rename of a file",
    ),
    Mutant(
        "link-name-not-flushed", "base/file.cpp",
        "  sync_path(folder_of(path));",
        "",
        "base/file_change FileChange.ALinkIsRenamedThenItsFolderFlushed",
        "a power cut may undo the change of a link",
    ),
    Mutant(
        "moved-folder-name-not-flushed", "base/file.cpp",
        "  sync_path(folder_of(to));",
        "",
        "cli/durability test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
        "a power cut may undo the rename of a checkpoint",
    ),
    Mutant(
        "made-folder-name-not-flushed", "base/file.cpp",
        "  sync_path(folder.parent_path());",
        "",
        "base/file_change FileChange.EveryFolderMadeIsFlushedBeforeTheNext",
        "a power cut may undo the making of a folder",
    ),
    Mutant(
        "file-in-folder-not-flushed", "base/file.cpp",
        "    if (type == fs::file_type::regular) sync_path(entry.path());",
        "",
        "base/file_change FileChange.AFolderIsFlushedFromTheInsideThenRenamed",
        "a folder gets its name before the bytes in it are on the disk",
    ),
    Mutant(
        "folder-in-folder-not-flushed", "base/file.cpp",
        "    if (type == fs::file_type::directory) sync_tree(entry.path());",
        "",
        "base/file_change FileChange.AFolderIsFlushedFromTheInsideThenRenamed",
        "a folder gets its name before the folders in it are on the disk",
    ),
    Mutant(
        "folder-not-flushed", "base/file.cpp",
        "  sync_path(folder);",
        "",
        "base/file_change FileChange.AFolderIsFlushedFromTheInsideThenRenamed",
        "a folder gets its name before the names in it are on the disk",
    ),
    Mutant(
        "folder-name-not-flushed", "base/file.cpp",
        "  sync_path(folder_of(target));",
        "",
        "base/file_change FileChange.AFolderIsFlushedFromTheInsideThenRenamed",
        "a power cut may undo the rename of a folder",
    ),
    Mutant(
        "disk-failure-is-a-mistake", "base/file.cpp",
        "code == ENOSPC || code == EDQUOT || code == EIO ||",
        "code == ENOSPC || code == EDQUOT ||",
        "cli/durability test_a_disk_that_fails_at_any_call_of_init",
        "a disk that fails is taken for the caller's mistake",
    ),
    Mutant(
        "leftovers-stay", "base/file.cpp",
        "  remove_abandoned(path);",
        "",
        "cli/durability test_the_next_run_removes_what_a_killed_one_left",
        "what a killed process has left stays for ever",
    ),
    Mutant(
        "leftovers-of-the-living", "base/file.cpp",
        "  return ::kill(process, 0) != 0 && errno == ESRCH;",
        "  return true;",
        "base/file TemporaryNames.ThoseOfOthersStay",
        "what another process is writing is removed",
    ),
    Mutant(
        "leftovers-of-our-own", "base/file.cpp",
        "if (process == ::getpid()) return number < first_number();",
        "if (process == ::getpid()) return true;",
        "base/file AtomicFile.TwoWritersOfOneNameDoNotMix",
        "what this process is writing is removed",
    ),
    Mutant(
        "name-leads-out", "base/file.cpp",
        'name.find_first_of(std::string_view("/\\0", 2)) == name.npos;',
        "true;",
        "base/file PlainName.StaysInItsFolder", "a file's name may be a path",
    ),
    Mutant(
        "mapped-files-unwatched", "cli/command_line.cpp",
        "  base::watch_mapped_files();",
        "",
        "cli/durability test_weights_that_are_cut_short_end_a_scoring",
        "a file that is cut short ends the program by a signal",
    ),
    Mutant(
        "mapped-file-stays-watched", "base/mapped_file.cpp",
        "    slot.start = 0;",
        "",
        "base/mapped_file MappedFileDeathTest.FilesThatAreDoneWithMakeRoom",
        "the table of mapped files fills up",
    ),
    Mutant(
        "every-bus-error-is-a-file", "base/mapped_file.cpp",
        "start == 0 || address < start || address >=",
        "start == 0 || address >=",
        "base/mapped_file MappedFileDeathTest.OneThatIsCutShortEndsTheProgram",
        "another file than the one cut short is blamed",
    ),
    Mutant(
        "copied-file-not-read", "base/file.cpp",
        "    if (count < 0 && code == EFAULT) read_through(bytes);",
        "",
        "base/mapped_file MappedFileDeathTest.SoDoesOneThatIsCutShortWhileItIsCopied",
        "of a file cut short while it is copied, the copy is blamed",
    ),
    # --- import, export, score, generate ---
    Mutant(
        "import-gate-up-swapped", "model/hugging_face_config.cpp",
        '{"layers.#.mlp.", "model.layers.#.mlp."},',
        '{"layers.#.mlp.gate", "model.layers.#.mlp.up"}, '
        '{"layers.#.mlp.up", "model.layers.#.mlp.gate"}, '
        '{"layers.#.mlp.", "model.layers.#.mlp."},',
        "cli/import_export test_import_keeps_bytes_under_native_names",
        "gate_proj and up_proj exchanged on import and on export",
    ),
    Mutant(
        "import-rank-rounded-down", "model/hugging_face_config.cpp",
        "automatic ? (c.hidden_size + 15) / 16 :",
        "automatic ? c.hidden_size / 16 :",
        "cli/import_export test_import_reads_the_forms_of_a_config",
        "`time_step_rank: auto` rounded down",
    ),
    Mutant(
        "import-null-window", "model/hugging_face_config.cpp",
        'c.window = windowed ? fields.size("sliding_window", 4096) : 0;',
        'c.window = fields.size("sliding_window", 4096);',
        "cli/import_export test_import_reads_the_forms_of_a_config",
        "`sliding_window: null` becomes 4096 instead of unlimited",
    ),
    Mutant(
        "import-llama-grouped", "model/hugging_face_config.cpp",
        'fields.size("num_key_value_heads", is_llama ? c.num_heads : 8);',
        'fields.size("num_key_value_heads", 8);',
        "cli/import_export test_import_reads_the_forms_of_a_config",
        "a Llama that names no key heads gets a Mistral's eight",
    ),
    Mutant(
        "import-interleaved-angles", "model/hugging_face_config.cpp",
        '"rope_interleaved"})',
        '"use_qk_norm"})',
        "cli/malformed test_refused_hugging_face_configs",
        "a Llama whose rotary pairs lie side by side is read as if they did not",
    ),
    Mutant(
        "ids-line-shown-raw", "eval/ids_line.cpp",
        "base::printable(json.dump(), 60)",
        "json.dump().substr(0, 60)",
        "eval/ids_line IdsLine.WhatIsShownOfItIsPrintable",
        "a line of ids is shown with its control characters",
    ),
    Mutant(
        "chat-special-tokens-in-messages", "eval/chat.cpp",
        "const auto ids = tokenizer.encode_ordinary(text);",
        "const auto ids = tokenizer.encode(text);",
        "eval/chat ChatMl.NobodyWritesItsTokens",
        "a message can end its own turn and begin one of the system",
    ),
    Mutant(
        "chat-special-token-counts-as-text", "data/byte_level.cpp",
        "return encode(text, unspecial_);", "return encode(text, Added{});",
        "eval/chat ChatMl.NobodyWritesItsTokens",
        "with the special tokens all added tokens of a message are lost",
    ),
    Mutant(
        "chat-ended-turn-closed-again", "eval/chat.cpp",
        "return ends_with(recent, {end_}) ? newline_ :",
        "return recent.empty() ? newline_ :",
        "cli/chat test_replies_that_end_and_that_are_cut_are_closed_alike",
        "a reply that ended by itself is ended once more",
    ),
    Mutant(
        "chat-opens-every-turn", "eval/chat.cpp",
        "position == 0 ? frame.opening()", "position >= 0 ? frame.opening()",
        "eval/chat Chat.ReadsEveryTokenOnceAndIsTheWholeText",
        "each turn begins the conversation anew and closes none",
    ),
    Mutant(
        "chat-end-token-passed-over", "eval/generate.cpp",
        "if (is_eos || std::ranges::find(options.ends, id) != options.ends.end()) {",
        "if (is_eos) {",
        "eval/chat Chat.EndsAtItsTokenWhichIsNoText",
        "a reply goes on behind <|im_end|> where the model's end is another token",
    ),
    Mutant(
        "chat-default-system-lost", "eval/chat.cpp",
        "if (!system && found && is_chatml(found->text))", "if (false)",
        "cli/chat test_a_conversation_is_what_transformers_makes_of_it",
        "the system message that the model's own template gives is left out",
    ),
    Mutant(
        "chat-interrupt-kept", "cli/chat_verb.cpp",
        "return forget_interrupt(SIGINT);", "return;",
        "cli/chat test_ctrl_c_ends_a_reply_and_then_the_chat",
        "Ctrl-C during a reply ends the program at the next prompt",
    ),
    Mutant(
        "chat-cursor-moved", "base/printable.h",
        "const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;",
        "const bool is_c1 = false;",
        "base/printable Watchable.MovesNoCursor",
        "U+009B, which begins commands of a terminal, reaches it",
    ),
    Mutant(
        "packed-parts-out-of-order", "infer/weight_source.cpp",
        'source.matrix(name("gate_up"), {w.gate, w.up});',
        'source.matrix(name("gate_up"), {w.up, w.gate});',
        NATIVE,
        "gate and up exchanged where they are laid out",
    ),
    Mutant(
        "packed-decays-as-logarithms", "infer/packed_folder.cpp",
        "item.kind == Listing::decay ? decays_of(tensor) : widened(tensor);",
        "widened(tensor);",
        "infer/packed_folder PackedFolder.GivesTheBitsOfThePlainOne",
        "a packed checkpoint holds A_log in place of A",
    ),
    Mutant(
        "packed-border-unchecked", "infer/weight_source.cpp",
        "base::require(reinterpret_cast<uintptr_t>(bytes.data()) % border == 0,",
        "base::require(true,",
        "infer/packed_folder PackedFolder.TensorsThatDoNotFitAreRefused",
        "panels may begin anywhere",
    ),
    Mutant(
        "packed-digest-of-its-own", "model/checkpoint.cpp",
        "const auto it = metadata.find(kPackedFromName);",
        "const auto it = metadata.find(std::string(kDigestName));",
        "cli/packed test_states_go_from_one_to_the_other",
        "a packed checkpoint refuses the states of the plain one",
    ),
    Mutant(
        "run-file-control-characters", "base/run_file.cpp",
        "require((byte >= 0x20 && byte != 0x7f) || byte == '\\t',",
        "require(true,",
        "base/run_file RunFile.ControlCharactersAreRefused",
        "a text of a run file may hold what cannot be written again",
    ),
    Mutant(
        "cached-files-not-available", "base/memory.cpp",
        'used -= number_in(folder / "memory.stat", key, 0);',
        'used -= 0 * number_in(folder / "memory.stat", key, 0);',
        "base/memory AvailableMemory.IsWhatTheStrictestGroupLeaves",
        "files in the cache of a control group count as taken",
    ),
    Mutant(
        "export-overflow", "model/hugging_face.cpp",
        "if (to == Dtype::f16)",
        "if (false)",
        "cli/import_export test_export_refuses_what_f16_cannot_hold",
        "values beyond f16 are exported as infinity",
    ),
    # --- GGUF files ---
    Mutant(
        "gguf-gap-accepted", "model/gguf_header.cpp",
        "if (tensor.begin != next)",
        "if (tensor.begin < next)",
        "model/gguf MalformedGguf.Tensors",
        "a GGUF file may leave bytes between two tensors",
    ),
    Mutant(
        "gguf-block-over-rows", "model/gguf_header.cpp",
        "if (tensor.shape.back() % block != 0)",
        "if (*count % block != 0)",
        "model/gguf MalformedGguf.Tensors",
        "a block of a GGUF tensor may lie across two rows",
    ),
    Mutant(
        "gguf-string-past-the-end", "model/gguf_header.cpp",
        "if (count > bytes_.size() - at_) {",
        "if (at_ + count > bytes_.size()) {",
        "model/gguf MalformedGguf.Fields",
        "a length in a GGUF file that wraps around is taken",
    ),
    Mutant(
        "gguf-high-scales", "model/gguf_types.cpp",
        "at(group - 4) >> 6 << 4)",
        "at(group - 4) >> 6 << 5)",
        "model/gguf_types GgufTypes.BlocksGiveTheValuesTheyWerePackedFrom",
        "the upper bits of the last four scales of a K block land one bit too high",
    ),
    Mutant(
        "gguf-nibbles-side-by-side", "model/gguf_types.cpp",
        "return i < kHalf ? byte_at(nibbles + i) & 15 : byte_at(nibbles + i - kHalf) >> 4;",
        "return byte_at(nibbles + i / 2) >> (i % 2 * 4) & 15 & (kHalf - 1);",
        "model/gguf_types GgufTypes.BlocksGiveTheValuesTheyWerePackedFrom",
        "the two numbers of a byte are taken for neighbours",
    ),
    Mutant(
        "gguf-rows-in-pairs", "model/gguf.cpp",
        "if (transfer.heads > 0) transfer.change = Change::halves;",
        "",
        "cli/gguf test_a_llama_is_the_one_of_transformers",
        "rotary rows of a GGUF file stay side by side",
    ),
    Mutant(
        "gguf-keys-in-heads", "model/gguf.cpp",
        "transfer.heads = model.config.num_kv_heads;",
        "transfer.heads = model.config.num_heads;",
        "cli/gguf test_a_llama_is_the_one_of_transformers",
        "rows of k are put in order as if there were as many heads as in q",
    ),
    Mutant(
        "gguf-a-for-its-logarithm", "model/gguf.cpp",
        "value = static_cast<float>(std::log(-double{value}));",
        "value = -value;",
        "cli/gguf test_a_mamba_is_the_one_of_transformers",
        "A of a GGUF file is taken for its logarithm",
    ),
    Mutant(
        "gguf-stretched-angles", "model/gguf.cpp",
        "return value != 1;",
        "return value < 1;",
        "cli/gguf test_refused_tensors",
        "factors of the angles above 1 are dropped",
    ),
    Mutant(
        "gguf-unknown-key", "model/gguf_config.cpp",
        'fields.refuse_unknown(key.architecture + ".");',
        "",
        "cli/gguf test_refused_fields",
        "a key of the architecture that bmojo does not know is ignored",
    ),
    Mutant(
        "gguf-added-as-special", "model/gguf_tokenizer.cpp",
        "if (!special && type != TokenType::user_defined) continue;",
        "if (!special) continue;",
        "cli/gguf test_ids_are_those_of_the_tokenizer",
        "user-defined tokens of a GGUF file are merged like any other text",
    ),
    Mutant(
        "score-shifted", "eval/score.cpp",
        "{logits, V}, n, V, ids.data() + from + 1,",
        "{logits, V}, n, V, ids.data() + from,",
        "cli/score test_logprobs_are_those_of_the_logits",
        "a token is scored by the logits that already know it",
    ),
    Mutant(
        "failed-read-ends-the-lines", "base/input.cpp",
        'if (got < 0) throw RunError(fmt::format("{}: reading failed: {}", subject, reason()));',
        "if (got < 0) return 0;",
        "base/input LineReader.RefusesWhatIsNoRegularFile",
        "lines that cannot be read are left out in silence",
    ),
    Mutant(
        "pipe-as-a-file", "base/input.cpp",
        "if (known && S_ISREG(status.st_mode)) return descriptor;",
        "if (known && !S_ISDIR(status.st_mode)) return descriptor;",
        "base/input ReadInput.RefusesWhatIsNoRegularFile", "a pipe or a device is read as a file",
    ),
    Mutant(
        "set-twice", "model/choice.cpp",
        'base::require(seen.insert(key).second, "--set:',
        'base::require(seen.insert(key).second || true, "--set:',
        "cli/verbs test_mistakes_exit_2_with_one_line",
        "of two values for a field the last wins in silence",
    ),
    Mutant(
        "closed-stdout-taken", "cli/command_line.cpp",
        "if (::fcntl(descriptor, F_GETFD) < 0)",
        "if (descriptor < 0)",
        "cli/score test_nothing_is_printed_into_files_where_stdout_is_closed",
        "results are printed into a file that was opened in the place of a closed stdout",
    ),
    Mutant(
        "torch-memory-stays", "nn/language_model.cpp",
        "memory_of(readings[i]).batch = batch;",
        "",
        "nn/native_eval NativeEval.ScoresAreThoseOfTorch",
        "through torch every call starts the sequence anew",
    ),
    Mutant(
        "torch-row-of-the-first", "nn/language_model.cpp",
        "x = x.narrow(0, sequence, 1);",
        "x = x.narrow(0, 0, 1);",
        "nn/native_eval NativeEval.ATorchSequenceLeavesItsBatch",
        "a sequence that leaves its batch goes on with the memory of the first",
    ),
    Mutant(
        "eval-of-the-token-read", "eval/evaluate.cpp",
        "due.push_back({hidden + i * D, target});",
        "due.push_back({hidden + out[0].place * D, target});",
        "eval/evaluate Evaluate.CountsWhatAPlainReaderCounts",
        "every answer is scored by the first one's logits",
    ),
    Mutant(
        "choices-share-too-much", "eval/likelihood.cpp",
        "count = std::min(count, group[i].context.size() - 1);",
        "",
        "eval/suite Likelihood.IsThatOfTheWholeTextBitByBit",
        "choices with contexts of several lengths share what the first one has",
    ),
    Mutant(
        "nothing-is-shared", "eval/likelihood.cpp",
        "if (group.size() < 2) return 0;",
        "if (group.size() < 20) return 0;",
        "eval/suite Likelihood.ACommonContextIsReadOnce",
        "the context is read for every choice",
    ),
    Mutant(
        "beginning-is-read-again", "eval/likelihood.cpp",
        "std::span(ids[g][0]).first(count).subspan(size)});",
        "std::span(ids[g][0]).first(count)});",
        "eval/suite Likelihood.ABeginningChangesNoBit",
        "what was read before is read once more in front of the question",
    ),
    Mutant(
        "document-for-each-question", "eval/suite_ask.cpp",
        "if (!items[0].document) return 1;",
        "if (items[0].choices.size() < 9) return 1;",
        "eval/suite Asking.ADocumentIsReadOnceForAllItsQuestions",
        "a document is read for each question about it",
    ),
    Mutant(
        "marks-within-a-line", "eval/suite_documents.cpp",
        "if (before == text.npos || text[before] == '\\n') return at;",
        "if (before == text.npos || text[before] != 0) return at;",
        "cli/suite test_items_score_as_their_texts_do",
        "a mark within a choice ends it",
    ),
    Mutant(
        "stop-text-stays", "eval/greedy.cpp",
        "out.text.resize(first);",
        "out.text.resize(first + 1);",
        "eval/suite_answer Greedy.ManyTextsAreWhatEachIsAlone",
        "the line break that ends an answer belongs to it",
    ),
    Mutant(
        "first-text-is-read-for-all", "eval/greedy.cpp",
        "std::copy_n(logits.data() + i * V, V, texts[i]->from.logits.data());",
        "std::copy_n(logits.data(), V, texts[i]->from.logits.data());",
        "eval/suite_answer Greedy.ManyTextsAreWhatEachIsAlone",
        "every text goes on with the first one's logits",
    ),
    Mutant(
        "articles-within-words", "eval/suite_answer.cpp",
        "if (!is_word(next.code)) break;",
        "if (!is_word(next.code) || end > at) break;",
        "eval/suite_answer SuiteAnswer.WordsAreThoseOfSquad",
        "an a is taken out of every word",
    ),
    Mutant(
        "worst-right-answer", "eval/suite_answer.cpp",
        "best = std::max(best, f1(words, answer_words(gold)));",
        "best = f1(words, answer_words(gold));",
        "eval/suite_answer SuiteAnswer.F1IsThatOfTheBestRightAnswer",
        "the last right answer counts instead of the best",
    ),
    Mutant(
        "words-count-again", "eval/suite_answer.cpp",
        "num_same += left[word]-- > 0;",
        "num_same += left[word] > 0;",
        "eval/suite_answer SuiteAnswer.F1IsThatOfTheBestRightAnswer",
        "a word that is written twice is right twice",
    ),
    Mutant(
        "yes-is-written", "eval/suite_documents.cpp",
        "if (std::ranges::all_of(about.golds, is_yes_or_no))",
        "if (about.golds.empty())",
        "cli/suite test_answers_are_written_as_generate_writes",
        "a question of yes or no is answered in the model's own words",
    ),
    Mutant(
        "short-numbers", "eval/suite_needles.cpp",
        "std::to_string(1000000 + random.below(9000000))",
        "std::to_string(random.below(9000000))",
        "eval/suite_needles Needle.StandsOnceInAsMuchNoiseAsFits",
        "some of the numbers have fewer than seven digits",
    ),
    Mutant(
        "chain-out-of-order", "eval/suite_needles.cpp",
        "std::ranges::sort(places);",
        "if (num_noise < 0) std::ranges::sort(places);",
        "eval/suite_needles VariableTracking.AChainBehindAnExample",
        "assignments are lost where their places do not follow each other",
    ),
    Mutant(
        "items-depend-on-the-seed-alone", "eval/suite_needles.cpp",
        "base::Random random({making.seed, number, 91});",
        "base::Random random({making.seed, 91});",
        "eval/suite_needles Needles.DependOnTheSeedAndTheirNumberAlone",
        "all texts of a seed are the same",
    ),
    Mutant(
        "texts-of-another-length", "cli/eval_suite.cpp",
        'header["length"] = length_of(options);',
        "",
        "cli/suite test_texts_that_are_made_depend_on_seed_and_length",
        "results of another length are gone on with, if only their digests fit",
    ),
    Mutant(
        "space-stays-in-the-context", "eval/suite_tokens.cpp",
        "const auto context = data::strip_end(before);",
        "const std::string_view context = before;",
        "eval/suite Questions.WhiteSpaceBelongsToTheContinuation",
        "white space at the end of a context is not scored",
    ),
    Mutant(
        "last-window-is-short", "eval/suite_tokens.cpp",
        "std::max<int64_t>(0, to - window - 1);",
        "std::max<int64_t>(0, from - 1);",
        "eval/suite Questions.DocumentsAreCutIntoWindows",
        "a document's last window is not filled with the tokens before it",
    ),
    Mutant(
        "brackets-over-lines", "eval/suite_text.cpp",
        'text.find_first_of("]\\n", at)',
        'text.find_first_of("]", at)',
        "eval/suite SuiteText.HellaSwagLosesItsBrackets",
        "brackets are taken out with the line break in them",
    ),
    Mutant(
        "last-of-the-likeliest", "eval/suite_score.cpp",
        "if (i > 0 && !(each > most)) continue;",
        "if (i > 0 && !(each >= most)) continue;",
        "eval/suite SuiteScore.TheFirstOfTheLikeliestIsChosen",
        "of two choices as likely the last one is taken",
    ),
    Mutant(
        "half-a-line-stays", "cli/items_file.cpp",
        "if (whole.size() < text.size()) fs::resize_file(path_, whole.size());",
        "",
        "cli/suite test_a_second_call_goes_on",
        "what a stopped call has written of a line stays in front of the next",
    ),
    Mutant(
        "items-of-another-model", "cli/items_file.cpp",
        "check_header(line, header, where);",
        "check_header(line, base::Json::object(), where);",
        "cli/suite test_results_of_something_else_are_refused",
        "results of another model are gone on with",
    ),
    Mutant(
        "engine-document-goes-on", "infer/model.cpp",
        "if (state.position > 0 && state.document != rest[0]) state = initial_state(config);",
        "",
        "eval/evaluate Evaluate.ADocumentStartsAfresh",
        "a document sees the one before it",
    ),
    Mutant(
        "engine-oracle-keeps-the-first", "infer/state.cpp",
        "if (std::ssize(kept) == m) break;",
        "if (std::ssize(kept) > m) break;",
        "eval/evaluate Evaluate.AnOracleKeepsWhatItIsTold",
        "an oracle has a place more than the memory",
    ),
    # --- data and training ---
    Mutant(
        "mqar-value-from-keys", "data/mqar.cpp",
        "return draw_from(random, vocabulary / 2, vocabulary);",
        "return draw_from(random, 1, vocabulary);",
        "data/mqar Mqar.EverySequenceKeepsTheRules", "values come from the keys' half",
    ),
    Mutant(
        "mqar-slots-uniform", "data/recall.cpp",
        "constexpr double kPower = 0.01 - 1;",
        "constexpr double kPower = 0;",
        "data/mqar Mqar.QuestionsComeSoonMoreOften", "every question slot is as likely",
    ),
    Mutant(
        "mqar-span-ignored", "data/mqar.cpp",
        "if (span(num_pairs) > 2 * num_pairs)",
        "if (span(num_pairs) < 2 * num_pairs)",
        "data/mqar Mqar.PairsStandAnywhereInTheSpan", "pairs stand at the span's start",
    ),
    Mutant(
        "mqar-questions-in-the-span", "data/mqar.cpp",
        "const int64_t first_slot = span(num_pairs) + draw_gap(random);",
        "const int64_t first_slot = 2 * num_pairs + draw_gap(random);",
        "data/mqar Mqar.EverySequenceKeepsTheRules", "questions do not wait for the span's end",
    ),
    Mutant(
        "mqar-default-span-drawn", "data/mqar.cpp",
        "if (span(num_pairs) > 2 * num_pairs)",
        "if (span(num_pairs) >= 2 * num_pairs)",
        "data/mqar Mqar.SequencesByHeart", "sequences without a span are others than before",
    ),
    Mutant(
        "distinct-draws-repeat", "data/draws.cpp",
        "moved[place] = at(first);",
        "moved[place] = place;",
        "data/mqar Mqar.EverySequenceKeepsTheRules", "a key is drawn twice",
    ),
    Mutant(
        "length-remedy-one-off", "data/recall.cpp",
        "return rule.needed(pairs, gap) <= rule.length;",
        "return rule.needed(pairs, gap) < rule.length;",
        "data/mqar Mqar.ImpossibleOnesAreRefusedWithWhatWouldFit",
        "a task that just fits is refused",
    ),
    Mutant(
        "noise-inside-a-pair", "data/noisy_mqar.cpp",
        "ids[at++] = keys[values.size()];",
        "ids[at] = keys[values.size()], at += 2, ids[at - 1] = first_noise();",
        "data/noisy_mqar NoisyMqar.EverySequenceKeepsTheRules",
        "noise stands between a key and its value",
    ),
    Mutant(
        "noise-share-of-the-rest", "data/noisy_mqar.cpp",
        "return std::llround(others * noise / (1 - noise));",
        "return std::llround(others * noise);",
        "data/noisy_mqar NoisyMqar.EverySequenceKeepsTheRules",
        "noise is a share of the other tokens, not of all",
    ),
    Mutant(
        "noise-before-all-pairs", "data/noisy_mqar.cpp",
        "for (const auto i : draw_distinct(random, count, 0, std::ssize(is_noise)))",
        "for (int64_t i = 0; i < count; ++i)",
        "data/noisy_mqar NoisyMqar.NoiseStandsBetweenAndAround",
        "noise stands before the first pair",
    ),
    Mutant(
        "motif-too-long", "data/fuzzy_mqar.cpp",
        "Motif tokens(draw_from(random, 1, motif + 1));",
        "Motif tokens(draw_from(random, 1, motif + 2));",
        "data/fuzzy_mqar FuzzyMqar.EverySequenceKeepsTheRules", "motifs have a token too many",
    ),
    Mutant(
        "motif-suffix-allowed", "data/fuzzy_mqar.cpp",
        "std::equal(shorter.rbegin(), shorter.rend(), longer.rbegin());",
        "shorter == longer;",
        "data/fuzzy_mqar FuzzyMqar.EverySequenceKeepsTheRules", "a key may end as another does",
    ),
    Mutant(
        "motif-due-too-late", "data/fuzzy_mqar.cpp",
        "std::ranges::copy(values[p], targets.begin() + answer - 1);",
        "std::ranges::copy(values[p], targets.begin() + answer);",
        "data/fuzzy_mqar FuzzyMqar.EverySequenceKeepsTheRules",
        "a value's token is due where it stands",
    ),
    Mutant(
        "induction-answer-of-the-end", "data/induction.cpp",
        "targets[length - 1] = ids[place + 1];",
        "targets[length - 1] = ids[length - 2];",
        "data/induction Induction.EverySequenceKeepsTheRules",
        "the token before the question is due",
    ),
    Mutant(
        "induction-special-among-the-rest", "data/induction.cpp",
        "id = draw_from(random, kSpecial + 1, vocabulary);",
        "id = draw_from(random, kSpecial, vocabulary);",
        "data/induction Induction.EverySequenceKeepsTheRules",
        "the special token stands in many places",
    ),
    Mutant(
        "induction-place-is-fixed", "data/induction.cpp",
        "const int64_t place = draw_from(random, 0, length - 2);",
        "const int64_t place = length - 3;",
        "data/induction Induction.EveryPlaceAndEveryAnswerIsAsLikely",
        "the answer stands just before the question",
    ),
    Mutant(
        "copy-out-of-order", "data/selective_copy.cpp",
        "std::ranges::sort(places);",
        "(void)places;",
        "data/selective_copy SelectiveCopy.EverySequenceKeepsTheRules",
        "content is due in any order",
    ),
    Mutant(
        "copy-content-is-a-marker", "data/selective_copy.cpp",
        "draw_from(random, 1, marker);",
        "draw_from(random, 1, marker + 1);",
        "data/selective_copy SelectiveCopy.EverySequenceKeepsTheRules",
        "markers stand among the content",
    ),
    Mutant(
        "test-is-train", "data/task.cpp",
        "base::Random random({seed, static_cast<uint64_t>(split), number});",
        "base::Random random({seed, number});",
        "data/task One/EveryTask.TrainAndTestShareNothing/0",
        "test sequences are those of training",
    ),
    Mutant(
        "target-across-documents", "data/packing.cpp",
        "targets.back() = kNotScored;",
        "targets.back() = 0;",
        "data/packing PackingTest.AStreamGoesOnAnywhere", "a document's end is scored",
    ),
    Mutant(
        "stream-skips", "data/packing.cpp",
        "int64_t at = sequence * num_tokens_ / num_sequences_ + from;",
        "int64_t at = sequence * num_tokens_ / num_sequences_ + from + from / 40;",
        "data/packing PackingTest.AStreamGoesOnAnywhere", "a stream leaves out tokens",
    ),
    Mutant(
        "sentencepiece-rest-keeps-blank", "data/tokenizer.cpp",
        "(is_rest && dummy_prefix_ ? 1 : 0)",
        "0",
        "data/tokenizer SentencePiece.CutsChangeNothing", "each part of a text begins with a blank",
    ),
    # --- byte-level BPE ---
    Mutant(
        "nfc-moves-younger-marks", "data/nfc.cpp",
        "if (flags[character_at(begin).code] & kNewer) begin = p;", "",
        "data/byte_level Nfc.LeavesYoungerCharactersAlone",
        "a mark is ordered past a character that `tokenizers` does not know",
    ),
    Mutant(
        "nfc-marks-not-ordered", "data/nfc.cpp",
        "order_marks(codes);", "",
        "data/byte_level Nfc.ComposesAndOrders", "marks stay in the order they come in",
    ),
    Mutant(
        "splitter-takes-every-space", "data/splitter.cpp",
        "return last == begin ? stop : last;",
        "return stop;",
        "data/byte_level Splitter.Gpt2", "no space is left to the word behind it",
    ),
    Mutant(
        "splitter-four-digits", "data/splitter.cpp",
        "i < 3 && p < end",
        "i < 4 && p < end",
        "data/byte_level Splitter.Llama3", "Llama 3's numbers have four digits",
    ),
    Mutant(
        "splitter-spaces-before-a-digit", "data/splitter.cpp",
        "if (pattern_ == SplitPattern::kDigits && class_at(stop) == kNumber) return stop;", "",
        "data/byte_level Splitter.Digits", "the last space is split off in front of a digit",
    ),
    Mutant(
        "added-token-shortest", "data/added_tokens.cpp",
        "if (nodes_[node].id >= 0) best =",
        "if (nodes_[node].id >= 0) return",
        "data/byte_level AddedTokens.TheLeftmostThenTheLongest",
        "the shortest added token is taken",
    ),
    Mutant(
        "merge-outdated", "data/bpe.cpp",
        "if (symbol.merge.rank != rank) continue;", "if (symbol.merge.rank == kNoRank) continue;",
        "data/byte_level Bpe.EqualsItsDefinition",
        "a pair that has merged since is merged by its old rank",
    ),
    Mutant(
        "merge-rightmost", "data/bpe.cpp",
        "[](Merge a, Merge b) { return a.rank < b.rank; });",
        "[](Merge a, Merge b) { return a.rank <= b.rank; });",
        "data/byte_level Bpe.EqualsItsDefinition", "of equal pairs the rightmost merges first",
    ),
    Mutant(
        "word-cache-without-length", "data/bpe.cpp",
        "key[3] |= uint64_t{word.size()} << 56;", "",
        "data/byte_level ByteLevel.TextComesBack", "a word and the same with NUL behind are one",
    ),
    Mutant(
        "added-tokens-all-raw", "data/byte_level.cpp",
        "(token.normalized ? added.normalized : added.raw).add(",
        "added.raw.add(",
        "data/byte_level ByteLevel.AddedTokensBeforeAndBehindTheNormaliser",
        "added tokens are looked for before the normaliser only",
    ),
    Mutant(
        "cut-behind-any-sign", "data/byte_level.cpp",
        "(flags == kOther && splitter_.pattern() != SplitPattern::kLlama3)",
        "flags == kOther",
        "data/byte_level ByteLevel.CutsChangeNothing",
        "a text is cut between a sign and the line breaks that belong to it",
    ),
    Mutant(
        "incomplete-character-shown", "data/unicode.cpp",
        "good, size && p + good == end}",
        "good, false}",
        "data/byte_level TextStream.HoldsIncompleteCharactersBack",
        "half a character is shown as U+FFFD",
    ),
    Mutant(
        "surrogates-are-characters", "data/unicode.cpp",
        "lead == 0xed ? 0x9f",
        "lead == 0xed ? 0xbf",
        "data/byte_level Utf8.FaultsAreReplacedAsPythonDoes", "surrogates pass as UTF-8",
    ),
    Mutant(
        "byte-fallback-accepted", "data/tokenizer_json.cpp",
        "require_flag(model.at(\"byte_fallback\"), false, false);", "",
        "cli/bpe test_parts_that_are_not_there_are_refused_by_name",
        "a part of tokenizer.json that would change ids is ignored",
    ),
    Mutant(
        "tokenizer-json-saved-as-model", "train/trainer.cpp",
        "context_.tokenizer[data::tokenizer_file_name(source_.data()->tokenizer_name())] =",
        "context_.tokenizer[data::kSentencePieceFile] =",
        "cli/train test_text_of_a_byte_level_tokenizer",
        "checkpoints carry tokenizer.json under another name",
    ),
    Mutant(
        "shard-index-may-fall", "data/shards.cpp",
        "ends[i].tokens > before.tokens && ",
        "",
        "data/shards MalformedShards.Index", "an index that does not rise is accepted",
    ),
    Mutant(
        "segments-detached", "train/backward.cpp",
        "auto out = model.forward(tensor_of(part, part.ids), state, call);",
        "auto out = model.forward(tensor_of(part, part.ids), nn::detach(state), call);",
        "train/trainer TrainerTest.SegmentsHaveTheGradientOfTheWhole",
        "gradients stop at every segment",
    ),
    Mutant(
        "memories-dropped", "train/trainer.cpp",
        "if (!states_.empty()) states_[m] = state;",
        "",
        "train/trainer TrainerTest.CarriedStateIsOneLongForward",
        "nothing is carried from step to step",
    ),
    Mutant(
        "shadow-not-trained", "train/trainer.cpp",
        "trained_(training_config(recipe_, model_.config()), model_.parameters()),",
        "trained_(model_.config(), model_.parameters()),",
        "train/memory Memory.TheShadowIsTrainedAndNotUsed", "--shadow adds no places",
    ),
    Mutant(
        "held-after-the-piece", "eval/evaluate.cpp",
        "std::ranges::binary_search(piece.seen, source)",
        "std::ranges::binary_search(piece.kept, source)",
        "eval/evaluate Evaluate.CountsWhatAPlainReaderCounts",
        "held looks into the set that stands after the tokens",
    ),
    Mutant(
        "cut-begins-a-step-late", "train/recipe.cpp",
        "if (recipe.shadow == 1 || at < recipe.cut_from) return {};",
        "if (recipe.shadow == 1 || at <= recipe.cut_from) return {};",
        "train/memory Memory.TheCutBeginsAtItsStep", "the soft cut begins a step late",
    ),
    Mutant(
        "loss-per-micro-batch", "train/trainer.cpp",
        "loss += backward(trained_, batches[m], segments, scale, state);",
        "loss += backward(trained_, batches[m], segments,"
        " 1.0 / batches[m].num_scored / plan_.num_micro, state);",
        "train/trainer TrainerTest.AccumulationIsOneBatch",
        "micro-batches count alike, however many tokens they score",
    ),
    Mutant(
        "nan-reaches-weights", "nn/adamw.cpp",
        "if (!std::isfinite(norm)) return norm;",
        "",
        "nn/adamw AdamW.AGradientThatIsNotFiniteNeverReachesTheWeights",
        "a gradient that is not finite is used",
    ),
    Mutant(
        "moments-not-restored", "train/run_folder.cpp",
        "    x.copy_(it->second);",
        "    (void)x;",
        "cli/resume test_resumed_is_unbroken_to_the_bit", "a resumed run forgets AdamW's moments",
    ),
    Mutant(
        "metrics-not-cut", "train/trainer.cpp",
        "  cut_metrics(context_.out, step_);",
        "",
        "cli/resume test_resumed_is_unbroken_to_the_bit", "lines behind the checkpoint stay",
    ),
    Mutant(
        "abandoned-step-keeps-memories", "train/trainer.cpp",
        "      states_ = states_before;",
        "",
        "cli/resume test_a_signal_does_not_wait_for_a_long_step",
        "memories of a step that a signal ended are read twice",
    ),
    Mutant(
        "warm-up-dropped", "train/recipe.cpp",
        "if (at < warmup) return peak * (at + 1) / warmup;",
        "",
        "train/trainer Schedule.RisesThenFallsToTheLeast", "the rate starts at its peak",
    ),
    Mutant(
        "norms-decay", "train/trainer.cpp",
        'name == "embedding.weight" || name == "head.weight";',
        'name == "embedding.weight" || name == "head.weight" || name.ends_with("norm.weight");',
        "train/trainer Groups.WhatDecaysAndWhatIsTheSsms", "weight decay pulls the gains to zero",
    ),
    Mutant(
        "states-not-restored", "train/run_folder.cpp",
        "    restore_states(checkpoint / state_name(workers.rank()), snapshot.model.layers().size(),",
        "    std::ignore = std::tuple(snapshot.model.layers().size(),",
        "cli/resume test_resumed_is_unbroken_to_the_bit", "a resumed run forgets its memories",
    ),
    Mutant(
        "skipped-steps-prune", "train/trainer.cpp",
        "if (skipped_in_a_row_ == 0) prune(context_.out, recipe_.keep);",
        "prune(context_.out, recipe_.keep);",
        "cli/train test_a_run_whose_last_loss_is_no_number",
        "the checkpoint before steps that were skipped is removed",
    ),
    Mutant(
        "one-worker-interrupted", "train/launch.cpp",
        "if (is_interrupted(status) && told_ == 0) tell(SIGTERM);", "",
        "cli/workers test_a_signal_to_workers_that_are_starting",
        "workers wait for one that a signal has ended",
    ),
    Mutant(
        "never-finite-is-success", "train/trainer.cpp",
        "  if (ending != Ending::interrupted && step_ > 0 && num_skipped_ == step_)",
        "  if (num_skipped_ < 0)",
        "cli/train test_a_loss_that_was_never_finite_is_a_failure[3]",
        "a run that never had a finite loss ends with exit code 0",
    ),
    Mutant(
        "time-left-jumps", "train/progress_text.cpp",
        "return steps * pace - std::min(since_last_step, pace);",
        "return steps * (pace + since_last_step);",
        "train/trainer Progress.TheTimeLeftDoesNotJump",
        "the step under way counts for all that are left",
    ),
    Mutant(
        "save-every-0", "train/recipe.cpp",
        "digits.data() + digits.size() && value >= 1,",
        "digits.data() + digits.size() && value >= 0,",
        "cli/train_input test_bad_input_is_one_line_and_changes_nothing",
        "a run that is to be saved every 0 steps begins",
    ),
    Mutant(
        "explicit-0-is-chosen", "train/recipe_words.cpp",
        "base::require(value >= static_cast<Number>(field.least),",
        "base::require(value >= 0,",
        "cli/train_input test_bad_input_is_one_line_and_changes_nothing",
        "--segment 0 is taken for one that was left out",
    ),
    Mutant(
        "micro-batches-take-no-time", "train/estimate.cpp",
        "result.step_seconds = seconds * static_cast<double>(plan.num_micro) + tried.update_seconds +",
        "result.step_seconds = seconds + tried.update_seconds +",
        "cli/train_plan test_the_time_of_the_plan_is_near_that_of_the_run[eight-micro-batches]",
        "the expected time is that of one micro-batch a step",
    ),
    Mutant(
        "validation-takes-no-time", "train/estimate.cpp",
        "validation_seconds(source, job, token_seconds);", "0;",
        "cli/train_plan test_the_time_of_the_plan_is_near_that_of_the_run[mostly-validation]",
        "the expected time leaves out validation",
    ),
    Mutant(
        "trial-memory-not-scaled", "train/estimate.cpp",
        "const auto part = static_cast<double>(shape.tokens()) / static_cast<double>(whole.tokens());",
        "const double part = 1;",
        "cli/train_plan test_the_memory_of_the_plan_is_that_of_the_run[bmojo-f-tiny-1]",
        "memory of a micro-batch is that of the part of it that was tried",
    ),
    Mutant(
        "layers-left-out-take-nothing", "train/estimate.cpp",
        "return both.*of + times * std::max(both.*of - half.*of, 0.0);",
        "return both.*of;",
        "cli/train_plan test_of_a_model_too_large_to_try_a_few_layers_are[bmojo-1-]",
        "a few layers are said to be the whole model",
    ),
    Mutant(
        "given-tokenizer-dropped", "train/job.cpp",
        "return model::read_tokenizer_files(folder);",
        "return {};",
        "cli/train test_a_tokenizer_goes_with_its_weights",
        "given weights lose their tokenizer",
    ),
    Mutant(
        "swiglu-map-gradient", "nn/ops/swiglu.cpp",
        "product_into(to_weight, grad.t(), gated(gate, up)[0]);",
        "product_into(to_weight, grad.t(), gate[0]);",
        "nn/swiglu SwiGluLinear.IsTheProductThroughAMap",
        "the map behind SwiGLU has the gradient of the gate alone",
    ),
    Mutant(
        "linears-last-gradient-only", "nn/ops/linears.cpp",
        "add_product(to_x, grad, weight);",
        "to_x = product(grad, weight);",
        "nn/linears TorchsAndOurs/LinearMaps.IsEveryMapOfTheSameInput/0",
        "of several maps of u only the last has a gradient to it",
    ),
    Mutant(
        "product-last-block-only", "kernels/product.cpp",
        "end - m, in.N - n, in.add || k > 0);",
        "end - m, in.N - n, in.add);",
        f"{KERNEL}/linears_odd_deep", "of a sum over 1,027 products the last 3 are kept",
    ),
    Mutant(
        "product-last-slab-only", "kernels/product.cpp",
        ".add = in.add || k > 0};",
        ".add = in.add};",
        f"{KERNEL}/linears_slabs", "of b, laid out in three parts, the last alone is multiplied",
    ),
    Mutant(
        "product-blocks-in-one-chain", "kernels/panel-inl.h",
        "constexpr int64_t kDepth = 512; ",
        "constexpr int64_t kDepth = 1024;",
        "kernels/kernels EveryTarget/Kernels.ProductIsItsSumInOrder/AVX2",
        "products are added in blocks of 1,024 instead of 512",
    ),
    Mutant(
        "packed-few-last-block-only", "kernels/packed_product.cpp",
        "in.out_stride, rows, columns - n, k > 0, size);",
        "in.out_stride, rows, columns - n, false, size);",
        "kernels/packed_product EveryTarget/Packing.ProductHasTheBitsOfTheOther/AVX2",
        "of a sum over more than 512 products of a few rows the last block is kept",
    ),
    Mutant(
        "packed-task-of-one-panel", "kernels/packed_product.cpp",
        "const int64_t end = std::min(in.w.N, tasks.first(task + 1) * kColumns);",
        "const int64_t end = std::min(in.w.N, (tasks.first(task) + 1) * kColumns);",
        "kernels/packed_product EveryTarget/Packing.ProductHasTheBitsOfTheOther/AVX2",
        "of a task's panels only the first is multiplied",
    ),
    Mutant(
        "packed-strips-of-another-task", "kernels/packed_product.cpp",
        "const float* strip = strips + whole * k + m * depth;",
        "const float* strip = strips + whole * k;",
        "kernels/packed_product EveryTarget/Packing.ProductHasTheBitsOfTheOther/AVX2",
        "rows behind the first 192 are multiplied as the first ones",
    ),
    Mutant(
        "packed-tail-not-zero", "kernels/packed_product.cpp",
        "last == to.N && k < to.K",
        "last > to.N && k < to.K",
        "kernels/packed_product Packed.LayoutIsPanelsOf32WithZerosBehindTheLastRow",
        "what lies behind the last row of a packed matrix is left as it was",
    ),
    Mutant(
        "attention-rows-turned-wrongly", "kernels/tile-inl.h",
        "y[i + 4] = hn::ConcatUpperUpper(d, x[i + 4], x[i]);",
        "y[i + 4] = hn::ConcatUpperUpper(d, x[i], x[i + 4]);",
        "kernels/kernels EveryTarget/Kernels.AttentionIsItsSoftmax/AVX2",
        "of eight queries side by side the first four take the others' channels",
    ),
    Mutant(
        "linears-first-columns-only", "nn/ops/linears.cpp",
        "    first += w.size(0);",
        "",
        "nn/linears TorchsAndOurs/LinearMaps.IsEveryMapOfTheSameInput/0",
        "of several maps made at once all results are the first columns",
    ),
    Mutant(
        "metrics-not-flushed", "train/trainer.cpp",
        "if (workers_.first() && std::filesystem::exists(metrics)) base::sync_path(metrics);",
        "",
        "cli/durability test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
        "a checkpoint may outlive the losses that led to it",
    ),
    Mutant(
        "manifest-without-files", "train/run_folder.cpp",
        'manifest["files"].is_object() && !manifest["files"].empty();',
        'manifest["files"].is_object();',
        "cli/run_folder test_a_manifest_that_is_none[no files]",
        "a manifest that names no file is believed",
    ),
    Mutant(
        "manifest-leads-out", "train/run_folder.cpp",
        'base::require(base::is_plain_name(name), "{} must name files of its folder',
        'base::require(true, "{} must name files of its folder',
        "cli/run_folder test_a_manifest_that_is_none[above]",
        "a manifest may name files outside its folder",
    ),
    Mutant(
        "manifest-follows-links", "train/run_folder.cpp",
        "return fs::is_regular_file(fs::symlink_status(path, ignored));",
        "return fs::is_regular_file(fs::status(path, ignored));",
        "cli/run_folder test_a_manifest_that_is_none[linked file]",
        "a manifest may name a link that leads out of its folder",
    ),
    Mutant(
        "second-signal-waits", "cli/command_line.cpp",
        "(!is_passed_on && second_signal.is_second(signal)))",
        "false)",
        "cli/durability test_a_second_signal_does_not_wait_at_all[process-1]",
        "a second Ctrl-C waits for the step to end",
    ),
    Mutant(
        "signal-passed-on-counts", "cli/command_line.cpp",
        "const bool is_passed_on = info->si_code == SI_QUEUE;",
        "const bool is_passed_on = false && info != nullptr;",
        "cli/durability test_a_signal_to_all_workers_is_heard_once",
        "one Ctrl-C ends workers at once, with nothing saved",
    ),
    Mutant(
        "second-signal-to-workers-waits", "train/launch.cpp",
        "if (!second_signal_.is_second(signal)) return tell(signal);",
        "return tell(signal);",
        "cli/durability test_a_second_signal_does_not_wait_at_all[process-2]",
        "a second signal to the process that started the workers waits for them",
    ),
    # --- the library ---
    Mutant(
        "library-logits-of-the-first", "eval/prompt.cpp",
        "s.last.insert(s.last.end(), rows - D, rows);",
        "s.last.insert(s.last.end(), s.hidden.begin(), s.hidden.begin() + int64_t(D));",
        "library/api Library.ABatchReadsAsEachAlone",
        "a batch gives everyone the logits of the first token",
    ),
    Mutant(
        "library-ids-checked-late", "eval/prompt.cpp",
        "base::require(id >= 0 && id < config.vocab_size,",
        "base::require(id >= 0 || config.vocab_size > 0,",
        "library/api LibraryErrors.AWrongIdLeavesTheStateAsItWas",
        "a wrong id is found when what stands before it has been read",
    ),
    Mutant(
        "library-foreign-ids-drawn", "eval/generate.cpp",
        "logits = logits.first(static_cast<size_t>(tokenizer->vocab_size()));",
        "logits = logits.first(logits.size());",
        "library/api Library.DrawsNoIdThatTheTokenizerLacks",
        "ids are drawn that the tokenizer does not have",
    ),
    Mutant(
        "library-options-swapped", "library/generate.cpp",
        ".top_p = options.top_p,", ".top_p = options.min_p,",
        "library/api Library.EveryOptionArrives", "top_p is what min_p should be",
    ),
    Mutant(
        "library-seed-lost", "library/model.cpp",
        "at.seed = seed;", "at.seed = seed == 0 ? 0 : 1;",
        "library/api Library.EveryOptionArrives", "all seeds but 0 draw the same",
    ),
    Mutant(
        "library-memory-size-lost", "library/model.cpp",
        "config.fading_tokens = options.fading_tokens.value_or(config.fading_tokens);",
        "(void)options.fading_tokens;",
        "library/api Library.OptionsOfTheModelArrive", "fading_tokens of the caller has no effect",
    ),
    # --- state files ---
    Mutant(
        "state-digest-not-compared", "infer/snapshot.cpp",
        "text_of(file.last(base::Digest::kTextSize)) == digest.text(),",
        "digest.text().size() == base::Digest::kTextSize,",
        "infer/snapshot Snapshot.TenThousandBitFlipsAreAllDetected",
        "a damaged state file is believed",
    ),
    Mutant(
        "state-of-other-memories", "infer/snapshot.cpp",
        "base::require(there[name] == value,",
        "base::require(there.contains(name),",
        "infer/snapshot Snapshot.AnotherModelsStateIsRefused",
        "a state goes on in a model with another window",
    ),
    Mutant(
        "state-size-of-the-next-chunk", "memory/visibility.h",
        "return std::max<int64_t>(0, t - 1) / w * w;",
        "return t / w * w;",
        "infer/snapshot Snapshot.LoadedGoesOnAsNeverSaved",
        "a state at the end of a chunk has the size of one in the next",
    ),
    Mutant(
        "scratch-not-kept", "kernels/scratch.h",
        "if (count == kEach) return false;",
        "if (count >= 0) return false;",
        "infer/stream Stream.AStepAllocatesNothing",
        "every step allocates its scratch anew",
    ),
    Mutant(
        "pool-does-not-wait", "base/thread_pool.cpp",
        "wait_until([this] { return state_ == 0; });",
        "wait_until([] { return true; });",
        "base/thread_pool ThreadPool.TheCallerWaitsForASlowWorker",
        "a job ends while a worker is still in its last task",
    ),
    Mutant(
        "pool-loses-exceptions", "base/thread_pool.cpp",
        "if (!failure_) failure_ = std::current_exception();",
        "failure_ = nullptr;",
        "base/thread_pool ThreadPool.ThrowsWhatATaskThrowsAndGoesOn",
        "what a task throws is lost",
    ),
    Mutant(
        "echo-is-a-second", "base/second_signal.h",
        "return now - first > kEcho;",
        "return true;",
        "base/second_signal SecondSignal.IsTheSameOneLater",
        "a signal sent to a process and to its group ends it at once",
    ),
    Mutant(
        "no-manifest", "train/run_folder.cpp",
        "        write_manifest(folder);",
        "",
        "cli/train test_a_run_leaves_what_is_promised", "a checkpoint has no manifest",
    ),
    Mutant(
        "bucket-not-summed", "train/gradient_buckets.cpp",
        "      gradient.copy_(bucket.gradients[j]);",
        "      (void)gradient;",
        "train/workers GradientBuckets.AreThoseOfOneProcess", "a worker keeps its own gradients",
    ),
    Mutant(
        "stop-of-one-worker", "train/trainer.cpp",
        "return workers_.max(context_.stop_asked && context_.stop_asked()) > 0;",
        "return context_.stop_asked && context_.stop_asked();",
        "cli/workers test_a_signal_saves_and_ends_both", "a worker stops alone",
    ),
    Mutant(
        "goodbye-unheard", "train/heartbeat.cpp",
        "if (beats >= kGoodbye) next_heard_ = Clock::time_point::max();",
        "",
        "train/heartbeat Heartbeat.OneThatSaysGoodbyeIsNot",
        "a worker that is done counts as lost",
    ),
    Mutant(
        "empty-range-seen", "kernels/memory_attention.cpp",
        "return from <= high && until > low && until > from;",
        "return from <= high && until > low;",
        "kernels/kernels EveryTarget/Kernels.AttentionIgnoresKeysThatNoQuerySees/AVX2",
        "a key that no query sees is written to",
    ),
    Mutant(
        "sweep-starts-afresh", "cli/sweep_runner.cpp",
        "const bool goes_on = fs::exists(folder / model::kLatest);",
        "const bool goes_on = false;",
        "cli/sweep test_a_stopped_sweep_goes_on", "a stopped sweep trains its runs from the start",
    ),
    Mutant(
        "sweep-ignores-the-recipe", "cli/sweep_verb.cpp",
        'return line.at("recipe") == recipe &&',
        "return !recipe.is_null() &&",
        "cli/sweep test_another_recipe_runs_again_and_another_question_asks_again",
        "any result counts as that of a run",
    ),
    Mutant(
        "interval-without-its-second-term", "cli/sweep_result.cpp",
        "std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n))",
        "std::sqrt(share * (1 - share) / n)",
        "cli/sweep test_a_run_is_what_train_and_eval_say", "the interval of an accuracy is too narrow",
    ),
    # --- what is told of attention ---
    Mutant(
        "told-attention-not-scaled", "nn/attention_weights.cpp",
        "/ std::sqrt(static_cast<double>(d));",
        "/ static_cast<double>(d);",
        "nn/attention_weights AttentionWeights.MixTheValuesToTheOutputOfRandomLayers",
        "the weights that are told are those of scores divided by d",
    ),
    Mutant(
        "told-window-shifted", "nn/attention_weights.cpp",
        "return {Memory::window, layout.window.oldest[piece] + j - m - in.num_fading};",
        "return {Memory::window, layout.window.oldest[piece] + j - m};",
        "nn/attention_weights AttentionWeights.MixTheValuesToTheOutputOfRandomLayers",
        "keys of the window are told under later positions",
    ),
    Mutant(
        "told-set-of-the-next-chunk", "infer/tell.cpp",
        ".seen = state.frozen.position,",
        ".seen = state.running.position,",
        "cli/explain test_memories_follow_from_the_innovation",
        "a chunk is said to have seen the set that stands after it",
    ),
    Mutant(
        "told-without-bias", "infer/tell.cpp",
        "dot += static_cast<double>(seen.bias[eidetic++]);",
        "dot += 0;",
        "nn/native_eval NativeEval.ExplanationsAreThoseOfTorch",
        "the weights that are told leave out the bias of the innovation",
    ),
    Mutant(
        "told-heads-added", "eval/explain.cpp",
        "told.weight[i] / static_cast<double>(told.num_heads)",
        "told.weight[i]",
        "cli/explain test_attention_is_one_whole_over_what_a_query_sees",
        "weights are added over the heads",
    ),
    Mutant(
        "parts-overlap", "nn/attention_weights.cpp",
        "at::indexing::Slice(border[which], border[which + 1])",
        "at::indexing::Slice(border[which], S)",
        "nn/attention_weights AttentionWeights.MixTheValuesToTheOutputOfRandomLayers",
        "the parts of the memories do not sum to the output",
    ),
    Mutant(
        "pole-without-its-bias", "nn/ssm_trace.cpp",
        "at::softplus(ssm.dt + ssm.dt_bias)",
        "at::softplus(ssm.dt)",
        "nn/ssm_trace SsmTrace.AStateIsMultipliedByThePolesOfItsTokens",
        "the poles that are told are those of other steps",
    ),
    Mutant(
        "time-constant-from-the-rounded-pole", "nn/ssm_trace.cpp",
        "return -exponents(ssm).reciprocal();",
        "return -poles(ssm).log().reciprocal();",
        "nn/ssm_trace SsmTrace.AfterATimeConstantOneInEIsLeft",
        "a pole that rounds to 1 is said never to fade",
    ),
    Mutant(
        "told-shares-do-not-sum", "cli/explained_realization.cpp",
        "along[i] += (part * output).sum().item<double>();",
        "along[i] += (part * part).sum().item<double>();",
        "cli/explain_realization test_the_parts_of_the_memories_are_the_output",
        "what comes from each memory does not add up to the output",
    ),
    Mutant(
        "told-poles-of-the-step", "cli/explained_realization.cpp",
        "const auto tau = nn::time_constants(ssm).flatten();",
        "const auto tau = nn::poles(ssm).flatten();",
        "cli/explain_realization test_time_constants_are_those_of_the_poles",
        "poles are counted as if they were time constants",
    ),
    Mutant(
        "outputs-told-as-innovations", "cli/explained_realization.cpp",
        '{"innovations", whiteness(channels(left), whole)},',
        '{"innovations", whiteness(of_outputs, whole)},',
        "cli/explain_realization test_whiteness_is_that_of_outputs_and_innovations",
        "the outputs are tested for whiteness in place of what the predictor leaves",
    ),
    Mutant(
        "predictor-looks-one-step-late", "nn/ops/innovation.cpp",
        "widen(shifted(source, i, in.positions));",
        "widen(shifted(source, i + 1, in.positions));",
        "cli/explain_realization test_whiteness_is_that_of_outputs_and_innovations",
        "the prediction misses the last output",
    ),
    Mutant(
        "stop-forgotten", "train/trainer.cpp",
        'accuracy_ = progress.at("val_accuracy");',
        "(void)progress;",
        "cli/train test_a_run_stops_at_an_accuracy", "a run that has stopped goes on when resumed",
    ),
    # --- realization: the paper's linear systems ---
    Mutant(
        "window-not-deadbeat", "realization/attention.cpp",
        "return [order](size_t) { return Vector(order); };",
        "return [order](size_t) { return Vector(order, 0.01); };",
        "realization/attention Attention.IsDeadbeatAfterNSteps",
        "what leaves a window comes back into it",
    ),
    Mutant(
        "residue-without-its-pole", "realization/transfer_function.cpp",
        "const double residue = system.a[i] * system.b[i] * system.c[i];",
        "const double residue = system.b[i] * system.c[i];",
        "realization/transfer_function TransferFunction.IsTheDiagonalSystemWithPolesWellApart",
        "the companion form of a diagonal system has another numerator",
    ),
    Mutant(
        "direct-sum-of-the-first-poles", "realization/diagonal_system.cpp",
        "parts[i].step(companion(Vector{a[i]}), Vector{b[i] * u[t]});",
        "parts[i].step(companion(Vector{systems[0].a[i]}), Vector{b[i] * u[t]});",
        "realization/transfer_function VaryingSystem.IsExactlyADirectSumOfOrderOne",
        "the poles of the direct sum do not follow the input",
    ),
    Mutant(
        "oldest-register-forgets", "realization/registers.cpp",
        "out(0, 0) = 1;",
        "out(0, 0) = 0;",
        "realization/linear_attention LinearAttention.BothFactorisationsAreTheSumOverAllTokens",
        "linear attention forgets what leaves its window",
    ),
    Mutant(
        "printed-read-out-corrected", "realization/linear_attention.cpp",
        "return {.a = companion(last_of(order)), .c = Vector(order, 1)};",
        "return {.a = companion(last_of(order)), .c = last_of(order)};",
        "realization/linear_attention LinearAttention.ThePrintedReadOutOverCounts",
        "the read-out that is shown to over-count is another one",
    ),
    Mutant(
        "state-loaded-into-one-place", "realization/load_state.cpp",
        "one_hot(e, n) = 1;",
        "one_hot(e, 0) = 1;",
        "realization/load_state LoadState.ExtraStepsEqualPassingTheState",
        "a state that is loaded by extra steps is not the one that was given",
    ),
    Mutant(
        "bilinear-slope", "realization/bilinear.cpp",
        "out[n] = h[n] + dt * (A[n] * h[n] + B[n] * u);",
        "out[n] = h[n] + dt * (0.99 * A[n] * h[n] + B[n] * u);",
        "realization/bilinear Bilinear.ErrorsShrinkWithTheirSlopes",
        "the bilinear form is off in its first order",
    ),
    Mutant(
        "reachability-in-the-wrong-order", "realization/minimality.cpp",
        "later = later * A[t];",
        "later = A[t] * later;",
        "realization/minimality Minimality.ColumnsAreTheStatesThatUnitInputsReach",
        "matrices of an input-varying system are multiplied in the wrong order",
    ),
    Mutant(
        "oscillator-damped", "realization/oscillator.cpp",
        ".denominator = {1, -2 * std::cos(theta), 1}",
        ".denominator = {0.9999, -2 * std::cos(theta), 1}",
        "realization/minimality Oscillator.SwingsWithoutEnd", "the oscillator fades",
    ),
    Mutant(
        "strictly-causal-without-its-pole", "realization/strictly_causal.cpp",
        "c_hat[i] = c[i] * a[i] * b[i];",
        "c_hat[i] = c[i] * b[i];",
        "realization/minimality StrictlyCausal.TimeInvariant",
        "the strictly causal form reads its state as if it were that of the next step",
    ),
    Mutant(
        "covariance-never-shrinks", "realization/innovations.cpp",
        "P(i, j) += B[i] * B[j] - gain[i] * variance * gain[j];",
        "P(i, j) += B[i] * B[j];",
        "realization/innovations Innovations.OfTheOptimalPredictorAreWhite",
        "the predictor never learns from what it sees how sure it may be",
    ),
    Mutant(
        "chi-square-fraction", "realization/whiteness.cpp",
        "const double numerator = -n * (n - a);",
        "const double numerator = -n * (n + a);",
        "realization/innovations Whiteness.ChiSquareOfTables", "p-values are wrong",
    ),
    Mutant(
        "empty-registers-left-out", "realization/attention.cpp",
        "const size_t first = reads_empty ? 0 :",
        "const size_t first = reads_empty && t > 0 ? 1 :",
        "realization/attention Attention.EmptyRegistersWouldTakePart",
        "the read-out that is shown to err is another one",
    ),
    Mutant(
        "companion-shifts-too-far", "realization/registers.cpp",
        "out(i, i + 1) = 1;",
        "out(i, i + 1) = i > 0;",
        "realization/attention Registers.ACompanionStepIsItsEquation",
        "the oldest register stays empty",
    ),
    Mutant(
        "cancelled-poles-kept", "realization/diagonal_system.cpp",
        "if (out.c[i] != 0) continue;",
        "continue;",
        "realization/transfer_function TransferFunction.AZeroCancelsAPoleThatIsNotDriven",
        "a pole that is not driven stays in the smaller system",
    ),
    Mutant(
        "repeated-poles-lost", "realization/diagonal_system.cpp",
        "out.c[same - out.a.begin()] += residue;",
        "out.c[same - out.a.begin()] = residue;",
        "realization/transfer_function TransferFunction.RepeatedPolesAreOne",
        "of equal poles the last one counts alone",
    ),
    Mutant(
        "instantaneous-without-feedthrough", "realization/diagonal_system.cpp",
        "y[t] = registers.read(frozen.numerator)[0] + frozen.feedthrough * u[t];",
        "y[t] = registers.read(frozen.numerator)[0] + u[t];",
        "realization/transfer_function VaryingSystem.IsNotOneSystemOfOrderTwo",
        "the system that is shown to differ would differ held still, too",
    ),
    Mutant(
        "newest-register-read-with-all", "realization/linear_attention.cpp",
        "return {.a = companion(last_of(order)), .c = last_of(order)};",
        "return {.a = companion(last_of(order)), .c = Vector(order, 1.0)};",
        "realization/linear_attention LinearAttention.EveryTokenIsCountedOnce",
        "tokens are counted more than once",
    ),
    Mutant(
        "mamba-loads-without-fading", "realization/load_state.cpp",
        "step.decay(e, n) = std::exp(dt * A(e, n));",
        "step.decay(e, n) = 1;",
        "realization/load_state LoadState.MambasOwnStepsForgetWhileTheyLoad",
        "Mamba's own steps forget nothing",
    ),
    Mutant(
        "gain-without-a-step", "realization/load_state.cpp",
        "step.gain(e, n) = dt * B[n];",
        "step.gain(e, n) = B[n];",
        "realization/load_state LoadState.WithoutAStepSizeNothingEnters",
        "a step of length 0 lets something in",
    ),
    Mutant(
        "compensation-one-step-short", "realization/load_state.cpp",
        "static_cast<double>(steps.size() - 1 - n)",
        "static_cast<double>(steps.size() - n)",
        "realization/load_state LoadState.FreeInputsCouldMakeUpForIt",
        "enlarged inputs miss the state",
    ),
    Mutant(
        "observability-transposed", "realization/minimality.cpp",
        "const Vector seen = transpose(earlier) * C[t];",
        "const Vector seen = earlier * C[t];",
        "realization/minimality Minimality.ACancellationIsReachableButNotObservable",
        "a cancelled pole is said to be seen",
    ),
    Mutant(
        "fit-of-one-pole", "realization/oscillator.cpp",
        "return (zz * xy * xy - 2 * xz * xy * zy + xx * zy * zy) / determinant;",
        "return xy * xy / xx;",
        "realization/minimality Oscillator.NoRealDiagonalSystemOfOrderTwoHasItsResponse",
        "the fit of two poles uses one",
    ),
    Mutant(
        "strictly-causal-varying-without-its-pole", "realization/strictly_causal.cpp",
        "y[t] += c[i] * a[i] * x[i];",
        "y[t] += c[i] * x[i];",
        "realization/minimality StrictlyCausal.InputVarying",
        "the input-varying form reads its state as if it were that of the next step",
    ),
    Mutant(
        "printed-delay-corrected", "realization/strictly_causal.cpp",
        "return rewritten_outputs(system, u, 1);",
        "return rewritten_outputs(system, u, 0);",
        "realization/minimality StrictlyCausal.AsPrintedItComesAStepLate",
        "the form that is shown to come late is another one",
    ),
    Mutant(
        "order-one-added", "realization/innovations.cpp",
        "out.push_back(now[t] - rho * before[t]);",
        "out.push_back(now[t] + rho * before[t]);",
        "realization/innovations Innovations.OfATooShortPredictorAreNot",
        "the prediction is added instead of taken off",
    ),
    Mutant(
        "mean-not-divided", "realization/innovations.cpp",
        "out.push_back(y[t] - sum / static_cast<double>(span));",
        "out.push_back(y[t] - sum);",
        "realization/innovations Innovations.OfARunningMeanAreNot",
        "the fixed predictor takes the sum for the mean",
    ),
    Mutant(
        "autocorrelation-with-the-mean", "realization/whiteness.cpp",
        "for (double& x : centred) x -= mean;",
        "for (double& x : centred) x -= 0 * mean;",
        "realization/innovations Whiteness.StatisticByHand",
        "a series that lies far from 0 is said to be correlated",
    ),
]


# --- the list itself -----------------------------------------------------------------------------


def list_digest():
    """Changes with any fault of the list."""
    return hashlib.sha256(json.dumps(MUTANTS).encode()).hexdigest()[:16]


def test_exists(test):
    """Whether the source of the tests has it; its parameters are not looked at."""
    program, _, case = test.partition(" ")
    room, _, name = program.partition("/")
    if room == "cli":
        path, wanted = f"tests/cli/test_{name}.py", rf"^def {re.escape(case.split('[')[0])}\("
    else:
        suite, _, rest = case.partition(".")
        kind = "_P" if "/" in suite else "(_F)?"  # one with parameters is called A/Suite.Name/B
        wanted = rf"^TEST{kind}\({suite.split('/')[-1]}, {rest.split('/')[0]}\)"
        path = f"tests/{room}/{name}_test.cpp"
    path = ROOT / path
    return path.exists() and re.search(wanted, path.read_text(), re.MULTILINE) is not None


def stale():
    """What is wrong with the list, a line each."""
    for name, count in Counter(mutant.name for mutant in MUTANTS).items():
        if count > 1:
            yield f"{name}: a name must stand once in the list, got {count} times"
    for mutant in MUTANTS:
        path = ROOT / "src/bmojo" / mutant.file
        count = path.read_text().count(mutant.old) if path.exists() else 0
        if count != 1 or "\n" in mutant.old + mutant.new:
            yield (f"{mutant.name}: the old text must stand once, in one line of {mutant.file}, "
                   f"got {count} times; whoever changes a line changes its fault")
        if not test_exists(mutant.test):
            yield f"{mutant.name}: its test must exist, got {mutant.test}"


# --- what was tried ------------------------------------------------------------------------------


class Journal:
    """Every outcome, a line each, written as soon as it is known. Lines that were written for other
    sources do not count."""

    def __init__(self, path, sources, forgotten=()):
        self.path, self.sources = path, sources
        found = read_lines(path)
        same = [row for row in found if row["sources"] == sources.digest(row["test"])]
        if len(same) < len(found):
            rest = f"{len(same)} of {len(found)} outcomes still count" if same else "starting anew"
            print(f"mutants: the sources have changed since the last run; {rest}", flush=True)
        names = {name for mutant in forgotten for name in (mutant.name, mutant.test)}
        self.rows = [row for row in same if row.get("name", row["test"]) not in names]
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def add(self, **row):
        self.rows.append(row | {"sources": self.sources.digest(row["test"])})
        with open(self.path, "a") as file:
            file.write(json.dumps(self.rows[-1]) + "\n")

    def of(self, mutant):
        """Its line; None where it is still to be tried."""
        return next((row for row in self.rows if mutant._asdict().items() <= row.items()), None)

    def passed(self, test):
        """Without a fault; a test whose fault was tried has."""
        return any(row["test"] == test for row in self.rows)


def read_lines(path):
    """A killed run may leave half a line at the end."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def write_results(journal):
    """Where the whole list was tried on what is committed. Says so, or what is in the way."""
    rows = [journal.of(mutant) for mutant in MUTANTS]
    left, changed = rows.count(None), record.changes()
    if left:
        reason = f"{left} of {len(rows)} faults are still to be tried"
    elif changed:
        reason = f"the work tree must be as committed, got changes in {record.some(changed)}"
    elif Sources().differ(journal.sources, {row["test"] for row in rows}):
        reason = "the sources have changed since the run began"
    else:
        keys = ("name", "file", "what", "test", "outcome", "seconds")
        outcomes = [{key: row[key] for key in keys} for row in rows]
        record.store(RESULTS, "make mutants", outcomes, list=list_digest(), faults=len(rows))
        return f"recorded in {RESULTS.relative_to(ROOT)}"
    return f"not recorded in {RESULTS.relative_to(ROOT)}: {reason}"


# --- trying --------------------------------------------------------------------------------------


class Sources:
    """What outcomes depend on, as it is now."""

    def __init__(self):
        self.hashes = {name: record.digest([name]) for name in record.names()
                       if name != "tools/mutants.py"}

    def digest(self, test):
        """Of all that the outcome of a test's fault depends on but the fault, which its line
        carries: everything but the other tests' own sources."""
        own = self.own(test)
        chosen = [f"{name} {value}" for name, value in self.hashes.items()
                  if name in own or not TEST_SOURCE.fullmatch(name)]
        return hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:16]

    def own(self, test):
        """A test's source, and those that it imports."""
        room, name = test.split(" ")[0].split("/")
        if room != "cli":
            return {f"tests/{room}/{name}_test.cpp"}
        found, left = set(), [f"test_{name}"]
        while left:
            path = f"tests/cli/{left.pop()}.py"
            if path in self.hashes and path not in found:
                found.add(path)
                left += IMPORT.findall((ROOT / path).read_text())
        return found

    def differ(self, before, tests):
        return any(self.digest(test) != before.digest(test) for test in tests)


async def in_every_tree(trees, work, todo):
    """Each tree takes the next of the list when it is done with one."""
    todo = list(reversed(todo))

    async def take(tree):
        while todo:
            await work(tree, todo.pop())

    async with asyncio.TaskGroup() as group:
        for tree in trees:
            group.create_task(take(tree))


async def prepare(trees, tests, journal):
    """Builds, and runs every test that is to notice a fault: it must pass without one."""
    failed = []

    async def run_untouched(tree, test):
        try:
            passed, output = await tree.passes(test)
        except Trouble as trouble:
            passed, output = False, str(trouble)
        if passed:
            journal.add(test=test, outcome="passes without a fault")
        else:
            failed.append(f"{test} must pass without a fault\n" + tail(output))

    for tree in trees:
        tree.copy(record.names())
    for tree in trees:  # one after the other: what one has compiled, the next finds in ccache
        await tree.configure()
        await tree.make(tests, os.cpu_count())
    await in_every_tree(trees, run_untouched, [test for test in tests if not journal.passed(test)])
    if failed:
        raise Trouble("\n".join(failed))


async def try_all(mutants, jobs, journal):
    """Tries what the journal does not have."""
    todo = [mutant for mutant in mutants if journal.of(mutant) is None]
    if len(todo) < len(mutants):
        print(f"mutants: {len(mutants) - len(todo)} faults were tried before", flush=True)
    if not todo:
        return
    trees = [Tree(FOLDER / str(number)) for number in range(1, min(jobs, len(todo)) + 1)]
    await prepare(trees, sorted({mutant.test for mutant in todo}), journal)
    processes = max(1, os.cpu_count() // len(trees))

    async def try_one(tree, mutant):
        start = time.monotonic()
        outcome = await tree.try_out(mutant, processes)
        seconds = round(time.monotonic() - start)
        tried = outcome in ("caught", "missed")
        if tried:
            journal.add(**mutant._asdict(), outcome=outcome, seconds=seconds)
        print(f"{outcome if tried else 'error':<8}{mutant.name:<34}{mutant.test}  {seconds} s"
              + ("" if tried else f"\n    {outcome}"), flush=True)

    await in_every_tree(trees, try_one, todo)


class Stopped(Exception):
    """By the signal of this number."""


async def until_stopped(work):
    """A signal ends the work: files are restored, programs ended."""
    task, heard = asyncio.ensure_future(work), []

    def hear(number):
        heard.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, hear, number)
    try:
        return await task
    except asyncio.CancelledError:
        raise Stopped(heard[0]) from None


async def go(mutants, options):
    forgotten = mutants if options.fresh else ()
    journal = Journal(FOLDER / "journal.jsonl", Sources(), forgotten)
    await try_all(mutants, options.jobs, journal)
    counts = Counter((journal.of(mutant) or {"outcome": "not tried"})["outcome"]
                     for mutant in mutants)
    print(", ".join(f"{counts[word]} {word}" for word in ("caught", "missed", "not tried")))
    print(write_results(journal))
    return 0 if counts["caught"] == len(mutants) else 1


def lock():
    """Held until we and all that we have started are gone, also after a kill."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(FOLDER / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("mutants: waiting for what still runs in build/mutants", file=sys.stderr)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--check", action="store_true", help="look for faults that are out of date")
    parser.add_argument("--fresh", action="store_true", help="forget what was tried before")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try these alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    options = parser.parse_args(words)
    unknown = set(options.only or []) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))} is not known; --list names them all")
    if options.jobs < 1:
        parser.error(f"--jobs: must be at least 1, got {options.jobs}")
    return options


def main(words=None):
    options = parse(words)
    if options.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:<34}{mutant.file}: {mutant.what} ({mutant.test})")
        return 0
    if faults := list(stale()):
        print("\n".join(f"tools/mutants.py: {fault}" for fault in faults), file=sys.stderr)
        return 1
    if options.check:
        return 0
    mutants = [each for each in MUTANTS if not options.only or each.name in options.only]
    try:
        lock()
        return asyncio.run(until_stopped(go(mutants, options)))
    except Trouble as trouble:
        print(f"mutants: {trouble}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print("mutants: stopped; `make mutants` goes on from here", file=sys.stderr)
        return 128 + stopped.args[0]
    except KeyboardInterrupt:  # while waiting for the lock
        return 130


if __name__ == "__main__":
    sys.exit(main())
