"""Language models that write one token after another: attention, mixtures of experts, state spaces."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .inputs import BATCH, Inputs, ids, long, masked
from .rows import GROUPED, TEXT, TOKENS, Row

GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **TOKENS}
HEADS = {**GROUPED, "head_dim": 8}
LATENT = {
    **TEXT,
    "kv_lora_rank": 8,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}


def pixels_as_tokens() -> Inputs:
    return {"input_ids": torch.randint(0, 16, (BATCH, 9))}


DECODERS: Mapping[str, Row] = {
    "apertus": Row("ApertusForCausalLM", ids, GROUPED),
    "arcee": Row("ArceeForCausalLM", ids, GROUPED),
    "biogpt": Row("BioGptForCausalLM", ids, TEXT),
    "bitnet": Row("BitNetForCausalLM", ids, GROUPED),
    "bloom": Row("BloomForCausalLM", masked, {**TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "codegen": Row("CodeGenForCausalLM", ids, {**GPT, "rotary_dim": 4, "n_ctx": 64}),
    "cohere": Row("CohereForCausalLM", ids, GROUPED),
    "cohere2": Row("Cohere2ForCausalLM", ids, {**GROUPED, "sliding_window": 4}),
    "ctrl": Row("CTRLLMHeadModel", ids, {**GPT, "dff": 64}),
    "diffllama": Row("DiffLlamaForCausalLM", ids, GROUPED),
    "ernie4.5": Row("Ernie4_5ForCausalLM", ids, HEADS),
    "exaone4": Row("Exaone4ForCausalLM", ids, {**GROUPED, "sliding_window": 4, "sliding_window_pattern": 2}),
    "falcon": Row("FalconForCausalLM", masked, {**TEXT, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-alibi": Row("FalconForCausalLM", masked, {**TEXT, "alibi": True}),
    "gemma": Row("GemmaForCausalLM", ids, HEADS),
    "gemma2": Row("Gemma2ForCausalLM", ids, {**HEADS, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    "gemma3": Row("Gemma3ForCausalLM", ids, {**HEADS, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    "glm": Row("GlmForCausalLM", ids, HEADS),
    "glm4": Row("Glm4ForCausalLM", ids, HEADS),
    "gpt-bigcode": Row("GPTBigCodeForCausalLM", masked, GPT),
    "gpt-neo": Row(
        "GPTNeoForCausalLM",
        ids,
        {**TEXT, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    ),
    "gpt-neox": Row("GPTNeoXForCausalLM", masked, TEXT),
    "gpt2": Row("GPT2LMHeadModel", ids, GPT),
    "gptj": Row("GPTJForCausalLM", ids, {**GPT, "rotary_dim": 4}),
    "granite": Row("GraniteForCausalLM", ids, GROUPED),
    "helium": Row("HeliumForCausalLM", ids, HEADS),
    "imagegpt": Row("ImageGPTModel", pixels_as_tokens, {**GPT, "vocab_size": 17}),
    "llama": Row("LlamaForCausalLM", ids, GROUPED),
    "mistral": Row("MistralForCausalLM", masked, {**GROUPED, "sliding_window": 4}),
    "mpt": Row("MptForCausalLM", masked, {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, **TOKENS}),
    "nanochat": Row("NanoChatForCausalLM", ids, GROUPED),
    "nemotron": Row("NemotronForCausalLM", ids, GROUPED),
    "olmo": Row("OlmoForCausalLM", ids, GROUPED),
    "olmo2": Row("Olmo2ForCausalLM", ids, GROUPED),
    "openai-gpt": Row("OpenAIGPTLMHeadModel", ids, GPT),
    "opt": Row("OPTForCausalLM", masked, {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 16}),
    "persimmon": Row("PersimmonForCausalLM", ids, TEXT),
    "phi": Row("PhiForCausalLM", ids, TEXT),
    "phi3": Row("Phi3ForCausalLM", ids, GROUPED),
    "qwen2": Row("Qwen2ForCausalLM", masked, GROUPED),
    "qwen3": Row("Qwen3ForCausalLM", masked, HEADS),
    "seed-oss": Row("SeedOssForCausalLM", ids, HEADS),
    "smollm3": Row("SmolLM3ForCausalLM", ids, GROUPED),
    "stablelm": Row("StableLmForCausalLM", ids, GROUPED),
    "starcoder2": Row("Starcoder2ForCausalLM", ids, GROUPED),
    "trocr": Row(
        "TrOCRForCausalLM", ids, {**TOKENS, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4}
    ),
    "xglm": Row(
        "XGLMForCausalLM", ids, {**TOKENS, "d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4}
    ),
}  # fmt: skip

MIXTURES: Mapping[str, Row] = {
    "deepseek-v2": Row(
        "DeepseekV2ForCausalLM",
        ids,
        {**LATENT, **ROUTED, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "topk_method": "greedy"},
    ),
    "deepseek-v3": Row(
        "DeepseekV3ForCausalLM", ids, {**LATENT, **ROUTED, "moe_intermediate_size": 16, "first_k_dense_replace": 1}
    ),
    "dots1": Row("Dots1ForCausalLM", ids, {**HEADS, **ROUTED, "moe_intermediate_size": 16}),
    "ernie4.5-moe": Row(
        "Ernie4_5_MoeForCausalLM", ids, {**GROUPED, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16}
    ),
    "flex-olmo": Row("FlexOlmoForCausalLM", ids, {**GROUPED, **EXPERTS}),
    "glm4-moe": Row("Glm4MoeForCausalLM", ids, {**HEADS, **ROUTED, "moe_intermediate_size": 16}),
    "gpt-oss": Row("GptOssForCausalLM", ids, {**HEADS, **LOCAL, "sliding_window": 4}),
    "granite-moe": Row("GraniteMoeForCausalLM", ids, {**GROUPED, **LOCAL}),
    "jetmoe": Row("JetMoeForCausalLM", ids, {**TEXT, **LOCAL, "kv_channels": 8, "num_key_value_heads": 2}),
    "mixtral": Row("MixtralForCausalLM", ids, {**GROUPED, **LOCAL}),
    "olmoe": Row("OlmoeForCausalLM", ids, {**GROUPED, **EXPERTS}),
    "phimoe": Row("PhimoeForCausalLM", ids, {**GROUPED, **LOCAL}),
    "qwen2-moe": Row(
        "Qwen2MoeForCausalLM",
        ids,
        {**GROUPED, **EXPERTS, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    ),
    "qwen3-moe": Row("Qwen3MoeForCausalLM", ids, {**HEADS, **EXPERTS, "moe_intermediate_size": 16}),
}  # fmt: skip

MAMBA = {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "conv_kernel": 4}
HYBRID = {"mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 2}
LINEAR = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}

STATE_SPACE: Mapping[str, Row] = {
    "bamba": Row(
        "BambaForCausalLM",
        ids,
        {**GROUPED, **HYBRID, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_chunk_size": 4, "attn_layer_indices": [1]},
    ),
    "falcon-h1": Row(
        "FalconH1ForCausalLM",
        ids,
        {**HEADS, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 4, "mamba_chunk_size": 4},
    ),
    "falcon-mamba": Row("FalconMambaForCausalLM", ids, MAMBA),
    "jamba": Row(
        "JambaForCausalLM",
        ids,
        {
            **GROUPED, **HYBRID, **EXPERTS, "mamba_dt_rank": 4, "use_mamba_kernels": False,
            "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        },
    ),
    "lfm2": Row("Lfm2ForCausalLM", ids, {**GROUPED, "layer_types": ["conv", "full_attention"]}),
    "mamba": Row("MambaForCausalLM", ids, MAMBA),
    "mamba2": Row(
        "Mamba2ForCausalLM", ids, {**MAMBA, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 4}
    ),
    "minimax": Row("MiniMaxForCausalLM", ids, {**HEADS, **LOCAL, "block_size": 4}),
    "qwen3-next": Row(
        "Qwen3NextForCausalLM",
        ids,
        {**HEADS, **EXPERTS, **LINEAR, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    ),
    "recurrent-gemma": Row(
        "RecurrentGemmaForCausalLM",
        long,
        {**HEADS, "lru_width": 32, "attention_window_size": 4, "block_types": ["recurrent", "attention"]},
    ),
    "rwkv": Row("RwkvForCausalLM", ids, {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 64}),
    "xlstm": Row("xLSTMForCausalLM", long, {**TOKENS, "hidden_size": 32, "num_heads": 4, "num_hidden_layers": 2}),
    "zamba2": Row(
        "Zamba2ForCausalLM",
        ids,
        {
            **GROUPED, "num_hidden_layers": 3, "mamba_d_state": 4, "n_mamba_heads": 4, "mamba_ngroups": 1,
            "mamba_headdim": 16, "chunk_size": 4, "layers_block_type": ["mamba", "hybrid", "mamba"],
            "num_mem_blocks": 1, "use_mamba_kernels": False, "attention_head_dim": 16, "adapter_rank": 4,
        },
    ),
}  # fmt: skip
