#pragma once

#include <filesystem>
#include <vector>

#include "bmojo/eval/suite.h"

namespace bmojo::eval {

// The readers of Suite::read.
void read_lambada(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_hellaswag(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_piqa(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_arc(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_winogrande(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_blimp(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_quality(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_qasper(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_narrativeqa(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_swde(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);
void read_wikitext(const std::filesystem::path& file, size_t limit, std::vector<Item>& items);

}  // namespace bmojo::eval
