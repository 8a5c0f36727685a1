"""Text encoders and encoder-decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .inputs import BATCH, LENGTH, Inputs, ids, long, mask, masked, tokens, translated
from .rows import BODY, GROUPED, TEXT, TOKENS, Row


def boxed() -> Inputs:
    """Tokens of a page, each with its box: left, top, right, bottom."""
    corners = torch.randint(0, 40, (BATCH, LENGTH, 2))
    return {**masked(), "bbox": torch.cat([corners, corners + torch.randint(1, 20, corners.shape)], -1)}


def table() -> Inputs:
    """Tokens of a table with seven kinds of place, each of at most three."""
    return {**masked(), "token_type_ids": torch.randint(0, 3, (BATCH, LENGTH, 7))}


def characters() -> Inputs:
    return {"input_ids": torch.randint(3, 1000, (BATCH, 32)), "attention_mask": mask(32)}


def marked() -> Inputs:
    """Tokens of a page with their paths of tags."""
    tags = torch.randint(0, 10, (BATCH, LENGTH, 5))
    return {**masked(), "xpath_tags_seq": tags, "xpath_subs_seq": torch.randint(0, 10, tags.shape)}


def entities() -> Inputs:
    places = torch.tensor([[[1, 2, -1], [4, -1, -1]]] * BATCH)
    found = {"entity_ids": torch.randint(1, 20, (BATCH, 2)), "entity_position_ids": places}
    return {**masked(), **found, "entity_attention_mask": torch.ones(BATCH, 2, dtype=torch.int64)}


def preprocessed() -> Inputs:
    return {"inputs": tokens(), "attention_mask": mask()}


FUNNEL = {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64}
REFORMER = {
    "attention_head_size": 8,
    "attn_layers": ["local", "local"],
    "axial_pos_embds": False,
    "feed_forward_size": 64,
    "hidden_size": 32,
    "local_attn_chunk_length": 4,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
}
MOBILEBERT = {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2}
PERCEIVER = {"d_model": 32, "d_latents": 32, "num_latents": 6, "num_blocks": 1, "num_self_attends_per_block": 2}
CANINE = {**BODY, "max_position_embeddings": 64, "downsampling_rate": 4, "local_transformer_stride": 8}

ENCODERS: Mapping[str, Row] = {
    "albert": Row("AlbertModel", masked, {**TEXT, "embedding_size": 16}),
    "bert": Row("BertModel", masked, TEXT),
    "bert-generation": Row("BertGenerationEncoder", masked, TEXT),
    "bigbird": Row("BigBirdModel", masked, {**TEXT, "attention_type": "original_full"}),
    "camembert": Row("CamembertForMaskedLM", masked, TEXT),
    "canine": Row("CanineModel", characters, {**CANINE, "num_hash_buckets": 50, "local_transformer_num_layers": 1}),
    "convbert": Row("ConvBertModel", masked, {**TEXT, "embedding_size": 16, "conv_kernel_size": 3}),
    "data2vec-text": Row("Data2VecTextModel", masked, TEXT),
    "deberta": Row("DebertaModel", masked, {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": Row("DebertaV2Model", masked, {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "distilbert": Row("DistilBertModel", masked, {**TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "electra": Row("ElectraModel", masked, {**TEXT, "embedding_size": 16}),
    "ernie": Row("ErnieModel", masked, {**TEXT, "use_task_id": True}),
    "esm": Row("EsmModel", masked, {**TEXT, "position_embedding_type": "rotary", "mask_token_id": 3}),
    "eurobert": Row("EuroBertModel", masked, GROUPED),
    "flaubert": Row("FlaubertModel", masked, {"vocab_size": 100, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "fnet": Row("FNetModel", ids, TEXT),
    "funnel": Row("FunnelModel", masked, {**FUNNEL, "vocab_size": 100, "pad_token_id": 0}),
    "ibert": Row("IBertModel", masked, TEXT),
    "jina-v3": Row("JinaEmbeddingsV3Model", masked, TEXT),
    "layoutlm": Row("LayoutLMModel", boxed, {**TEXT, "max_2d_position_embeddings": 64}),
    "lilt": Row("LiltModel", boxed, {**TEXT, "hidden_size": 48, "max_2d_position_embeddings": 64}),
    "longformer": Row("LongformerModel", long, {**TEXT, "attention_window": 4}),
    "luke": Row("LukeModel", entities, {**TEXT, "entity_vocab_size": 20, "entity_emb_size": 16}),
    "markuplm": Row("MarkupLMModel", marked, {**TEXT, "max_depth": 5, "xpath_unit_hidden_size": 8}),
    "megatron-bert": Row("MegatronBertModel", masked, TEXT),
    "mobilebert": Row("MobileBertModel", masked, {**TEXT, **MOBILEBERT}),
    "modernbert": Row("ModernBertModel", masked, {**TEXT, "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": Row("MPNetModel", masked, TEXT),
    "mra": Row("MraModel", long, {**TEXT, "block_per_row": 1}),
    "nomic-bert": Row("NomicBertModel", masked, {**TEXT, "head_dim": 8}),
    "nystromformer": Row("NystromformerModel", long, {**TEXT, "segment_means_seq_len": 16, "num_landmarks": 16}),
    "perceiver": Row("PerceiverForMaskedLM", preprocessed, {**PERCEIVER, "vocab_size": 100, "qk_channels": 32}),
    "reformer": Row("ReformerModel", long, {**TOKENS, **REFORMER}),
    "rembert": Row("RemBertModel", masked, {**TEXT, "input_embedding_size": 16, "output_embedding_size": 16}),
    "roberta": Row("RobertaForSequenceClassification", masked, TEXT),
    "roberta-prelayernorm": Row("RobertaPreLayerNormModel", masked, TEXT),
    "roc-bert": Row("RoCBertModel", masked, {**TEXT, "pronunciation_vocab_size": 100, "shape_vocab_size": 100}),
    "roformer": Row("RoFormerModel", masked, {**TEXT, "embedding_size": 16}),
    "splinter": Row("SplinterModel", masked, TEXT),
    "squeezebert": Row("SqueezeBertModel", masked, {**TEXT, "embedding_size": 32}),
    "tapas": Row("TapasModel", table, {**TEXT, "type_vocab_sizes": [3, 8, 8, 3, 8, 8, 10]}),
    "xlm": Row("XLMModel", masked, {"vocab_size": 100, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_langs": 1}),
    "xlm-roberta-xl": Row("XLMRobertaXLModel", masked, TEXT),
    "xlnet": Row("XLNetModel", masked, {"vocab_size": 100, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "xmod": Row("XmodModel", masked, {**TEXT, "languages": ["en_XX", "de_DE"], "default_language": "en_XX"}),
    "yoso": Row("YosoModel", masked, {**TEXT, "use_expectation": True}),
}

T5 = {**TOKENS, "eos_token_id": 1, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_SIDES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_WIDTHS = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64}
BART: dict[str, Any] = {**TOKENS, **_SIDES, **_WIDTHS, "decoder_start_token_id": 1}
_GEMMA = {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8}
_PROPHET = {"hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 4}

ENCODER_DECODERS: Mapping[str, Row] = {
    "bart": Row("BartModel", translated, BART),
    "bigbird-pegasus": Row("BigBirdPegasusModel", translated, {**BART, "attention_type": "original_full"}),
    "blenderbot": Row("BlenderbotModel", translated, BART),
    "blenderbot-small": Row("BlenderbotSmallModel", translated, BART),
    "fsmt": Row("FSMTModel", translated, {**BART, "src_vocab_size": 100, "tgt_vocab_size": 100, "langs": ["en", "de"]}),
    "led": Row("LEDModel", lambda: {**long(), "decoder_input_ids": tokens(length=5)}, {**BART, "attention_window": 4}),
    "longt5": Row("LongT5Model", translated, {**T5, "local_radius": 3}),
    "m2m100": Row("M2M100Model", translated, BART),
    "marian": Row("MarianMTModel", translated, BART),
    "mbart": Row("MBartForConditionalGeneration", translated, BART),
    "mt5": Row("MT5ForConditionalGeneration", translated, T5),
    "mvp": Row("MvpModel", translated, BART),
    "nllb-moe": Row(
        "NllbMoeModel",
        translated,
        {**BART, "num_experts": 4, "encoder_sparse_step": 1, "decoder_sparse_step": 1, "expert_capacity": 16},
    ),
    "pegasus": Row("PegasusModel", translated, BART),
    "pegasus-x": Row("PegasusXModel", translated, {**BART, "block_size": 4, "num_global_tokens": 2}),
    "plbart": Row("PLBartModel", translated, BART),
    "prophetnet": Row(
        "ProphetNetModel",
        translated,
        {**TOKENS, **_PROPHET, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
    ),
    "switch-transformers": Row(
        "SwitchTransformersModel",
        translated,
        {**T5, "num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    ),
    "t5": Row("T5Model", translated, T5),
    "t5gemma": Row("T5GemmaModel", translated, {"encoder": _GEMMA, "decoder": _GEMMA, "vocab_size": 100}),
    "umt5": Row("UMT5Model", translated, T5),
}
