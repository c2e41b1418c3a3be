#include "bmojo/model/gguf.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <span>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/gguf_config.h"
#include "bmojo/model/gguf_header.h"
#include "bmojo/model/gguf_tokenizer.h"
#include "bmojo/model/tensors.h"
#include "bmojo/model/tokenizer_files.h"

namespace bmojo::model {
namespace fs = std::filesystem;
namespace {

constexpr size_t kPiece = size_t{1} << 18;  // numbers converted at a time; whole blocks

// What is done with a tensor besides its type and its name.
enum class Change { none, halves, a_log };

struct Transfer {
  TensorInfo target;
  const GgufTensor* source;
  Change change = Change::none;
  int64_t heads = 0;  // of halves
};

// Files turn neighbours 2 i and 2 i + 1 of a head's rows, we turn i and i + half: the row of the
// file that becomes our `row`.
size_t row_in_pairs(size_t row, size_t head_size) {
  const size_t half = head_size / 2, i = row % head_size;
  return row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

class Converter {
 public:
  Converter(std::span<const std::byte> file, SafetensorsWriter& writer, int64_t total,
            const CopyProgress& progress)
      : file_(file), writer_(writer), total_(total), progress_(progress) {}

  void convert(const Transfer& transfer) {
    const GgufTensor& source = *transfer.source;
    const auto width = static_cast<size_t>(source.shape.back());
    const size_t rows = static_cast<size_t>(num_elements(source.shape)) / width;
    const size_t row_bytes = (source.end - source.begin) / rows;
    for (size_t row = 0; row < rows; ++row) {
      const size_t from = transfer.change == Change::halves
                              ? row_in_pairs(row, rows / static_cast<size_t>(transfer.heads))
                              : row;
      add_row(transfer, file_.subspan(source.begin + from * row_bytes, row_bytes));
    }
    flush(transfer);
  }

 private:
  void add_row(const Transfer& transfer, std::span<const std::byte> bytes) {
    const GgufType& type = *transfer.source->type;
    const size_t most = kPiece / type.block * type.bytes;
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(most, bytes.size()));
      const size_t count = part.size() / type.bytes * type.block;
      if (values_.size() + count > kPiece) flush(transfer);
      values_.resize(values_.size() + count);
      decode_gguf(type, part, std::span(values_).last(count));
      done_ += static_cast<int64_t>(part.size());
      bytes = bytes.subspan(part.size());
    }
  }

  void flush(const Transfer& transfer) {
    const auto subject = fmt::format("import: tensor {}", base::in_quotes(transfer.source->name));
    const Dtype dtype = transfer.target.dtype;
    if (transfer.change == Change::a_log) to_log(subject);
    if (dtype == Dtype::f16) require_below_f16_limit(values_, subject);
    stored_.resize(values_.size() * size_of(dtype));
    from_float(values_, dtype, stored_);
    writer_.write(stored_);
    values_.clear();
    if (progress_) progress_(done_, total_);
  }

  // A = -exp(A_log), rounded. In double, so that no second error is added but that of rounding.
  void to_log(const std::string& subject) {
    for (float& value : values_) {
      base::require(value < 0 && std::isfinite(value), "{} must hold numbers below 0, got {}",
                    subject, value);
      value = static_cast<float>(std::log(-double{value}));
    }
  }

  std::span<const std::byte> file_;
  SafetensorsWriter& writer_;
  int64_t done_ = 0, total_;
  const CopyProgress& progress_;
  std::vector<float> values_;
  std::vector<std::byte> stored_;
};

void write_weights(const fs::path& path, std::vector<Transfer> transfers,
                   std::span<const std::byte> file, const CopyProgress& progress) {
  // Wide types first, as the format's own writer does: every tensor is then aligned to its type.
  std::ranges::stable_sort(transfers, std::ranges::greater(),
                           [](const Transfer& transfer) { return size_of(transfer.target.dtype); });
  std::vector<TensorInfo> targets;
  int64_t total = 0;
  for (const auto& transfer : transfers) {
    targets.push_back(transfer.target);
    total += static_cast<int64_t>(transfer.source->end - transfer.source->begin);
  }
  SafetensorsWriter writer(path, targets, {{"format", "pt"}});
  Converter converter(file, writer, total, progress);
  for (const auto& transfer : transfers) converter.convert(transfer);
  writer.commit();
}

Transfer transfer_of(const GgufModel& model, const TensorSpec& spec, const GgufTensor& source,
                     std::optional<Dtype> dtype) {
  Transfer transfer{
      {spec.name, dtype.value_or(source.type->plain.value_or(Dtype::f32)), spec.shape}, &source};
  if (spec.name.ends_with(".q_proj.weight")) transfer.heads = model.config.num_heads;
  if (spec.name.ends_with(".k_proj.weight")) transfer.heads = model.config.num_kv_heads;
  if (transfer.heads > 0) transfer.change = Change::halves;
  if (spec.name.ends_with(".A_log")) transfer.change = Change::a_log;
  return transfer;
}

// Factors of each angle, as newer Llamas have them: all 1 is what bmojo does.
void check_rope_factors(const GgufTensor& tensor, std::span<const std::byte> file,
                        const std::string& subject) {
  const auto count = static_cast<size_t>(num_elements(tensor.shape));
  std::vector<float> values(std::min(kPiece, count));
  const auto bytes = file.subspan(tensor.begin, tensor.end - tensor.begin);
  const GgufType& type = *tensor.type;
  for (size_t done = 0; done < count; done += values.size()) {
    values.resize(std::min(kPiece, count - done));
    const size_t begin = done / type.block * type.bytes;
    decode_gguf(type, bytes.subspan(begin, values.size() / type.block * type.bytes), values);
    const auto other = std::ranges::find_if(values, [](float value) { return value != 1; });
    base::require(other == values.end(),
                  "{}: tensor '{}' must be all 1: bmojo does not scale positions, got {}", subject,
                  tensor.name, other == values.end() ? 1 : *other);
  }
}

std::vector<Transfer> match(const GgufModel& model, const GgufHeader& header,
                            std::span<const std::byte> file, std::optional<Dtype> dtype,
                            const std::string& subject) {
  std::vector<Transfer> transfers;
  std::set<std::string_view> used;
  for (const auto& spec : tensor_specs(model.config)) {
    const auto name = gguf_name(model.family, spec.name);
    const GgufTensor* source = header.find_tensor(name);
    base::require(source != nullptr, "{}: tensor '{}' is missing", subject, name);
    // Taps of a channel are a row there, without the size of 1 between.
    const bool is_taps = spec.name.ends_with(".conv1d.weight") && source->shape.size() == 2;
    const Shape wanted = is_taps ? Shape{spec.shape.front(), spec.shape.back()} : spec.shape;
    base::require(source->shape == wanted, "{}: tensor '{}' must be {}, got {}", subject, name,
                  to_string(wanted), to_string(source->shape));
    transfers.push_back(transfer_of(model, spec, *source, dtype));
    used.insert(source->name);
  }
  constexpr std::string_view kRopeFactors = "rope_freqs.weight";
  if (const auto* factors = header.find_tensor(kRopeFactors); factors != nullptr) {
    check_rope_factors(*factors, file, subject);
    used.insert(factors->name);
  }
  for (const auto& tensor : header.tensors)
    base::require(used.contains(tensor.name),
                  "{}: tensor {} is not part of a {} model with this config", subject,
                  base::in_quotes(tensor.name), name_of(model.family));
  return transfers;
}

// The note, where the tokenizer is left out.
std::string check_tokenizer(GgufTokenizer& tokenizer, const GgufOptions& options,
                            const std::string& subject) {
  std::string why_not = tokenizer.why_not;
  if (why_not.empty() && options.check_tokenizer) try {
      options.check_tokenizer(tokenizer.json);
    } catch (const base::Error& error) {
      why_not = error.what();
      tokenizer.json.clear();
    }
  return why_not.empty() ? ""
                         : fmt::format("{}: its tokenizer is not taken over: {}", subject, why_not);
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::string start(kGgufMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(start.data(), std::ssize(start)) && start == kGgufMagic;
}

Imported import_gguf(const fs::path& source, const fs::path& out, const GgufOptions& options) {
  const auto subject = base::printable(source.string());
  const base::MappedFile file(source);
  const auto header = parse_gguf_header(file.bytes(), subject);
  const auto model = model_of_gguf(header, subject);
  const auto transfers = match(model, header, file.bytes(), options.dtype, subject);
  auto tokenizer = tokenizer_of_gguf(header, subject);
  const auto note = check_tokenizer(tokenizer, options, subject);
  base::write_folder(out, [&](const fs::path& inside) {
    write_weights(inside / kWeightsFile, transfers, file.bytes(), options.progress);
    save_config(model.config, inside);
    if (!tokenizer.json.empty()) base::write_text(inside / "tokenizer.json", tokenizer.json);
    if (!tokenizer.chat_template.empty())
      base::write_text(inside / kChatTemplateFile, tokenizer.chat_template);
  });
  return {std::string(name_of(model.family)), model.config, note};
}

}  // namespace bmojo::model
