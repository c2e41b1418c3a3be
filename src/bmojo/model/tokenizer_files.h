#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace bmojo::model {

// How a conversation is written for the model, as a Jinja template: in a file of its own, or in
// `chat_template` of the other.
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

// The tokenizer's files of a checkpoint by name, as bytes: tokenizer.*, tokenizer_config.json,
// special_tokens_map.json, vocab.json, merges.txt and chat_template.jinja. They go wherever the
// model goes.
using TokenizerFiles = std::map<std::string, std::string>;
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder);
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace bmojo::model
