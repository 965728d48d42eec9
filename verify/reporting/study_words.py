"""What the pages of the studies and the index say, in English and Japanese.

Guarantees: every text and phrase has both languages; a phrase with braces is the template of a
`verify.studies.study.Phrase` or of `say`, with the same fields in both. Does not: say anything of derivations.
"""

from __future__ import annotations

# Long texts: name -> (English, Japanese).
TEXTS: dict[str, tuple[str, str]] = {
    "saturation": (
        "Without the factor 1/√d_k the softmax is said to get extremely small gradients. That is true of the median "
        "row at large d_k; the mean square first grows and then falls only like d_k^(−1/2), since a few rows with two "
        "near-equal top scores carry it. Both are below, measured on rows of scores with the law of scale·q·k for "
        "standard normal q and k, beside exact values: quadrature at that very n, d_k and scale, no limit taken. "
        "Made by `attnproof report`; why the scale is 1/√d_k at all is on the page [Scaling](scaling.md).",
        "係数 1/√d_k を省くとソフトマックスの勾配は極端に小さくなる、と言われる。大きな d_k での「中央値の行"
        "」については正"
        "しい。一方、二乗平均は d_k とともにいったん増え、その後も d_k^(−1/2) の速さでしか減らない。上位 2 つのスコアが"
        "ほぼ等しい少数の行が平均を支えるからである。以下では、標準正規分布の q、k から作る scale·q·k と同じ分布に従う"
        "行で両方を測り、厳密値と並べる。厳密値はその n、d_k、scale のままの数値積分で、極限は取っていない。このページ"
        "は `attnproof report` が作る。そもそもなぜ 1/√d_k なのかは[スケーリング](scaling.ja.md)のページにある。",
    ),
    "saturation symbols": (
        "Here α is the row's softmax, n its number of keys, J = diag(α) − ααᵀ its Jacobian ∂α/∂(scores) and ‖J‖_F the "
        "Frobenius norm: 0 when one key has all the weight, at most 1/√2 (two equal keys). Σα² is 1/n for equal "
        "weights and 1 for a single one; the entropy is in nats, at most ln n. z is (measured − exact)/standard error. "
        "Rows are independent; an interval is Student's.",
        "α は 1 行のソフトマックス、n はキーの数、J = diag(α) − ααᵀ はヤコビ行列 ∂α/∂(スコア)、‖J‖_F はフロベ"
        "ニウスノルムで"
        "、重みが 1 つのキーに集中すると 0、最大は 1/√2(等しい 2 つのキー)。Σα² は重みが均等なら 1/n、1 つに集中すれば"
        " 1。エントロピーの単位は nat で、最大 ln n。z は(測定値 − 厳密値)/標準誤差。行は互いに独立で、区間は Student"
        " の t 分布による。",
    ),
    "saturation median": (
        "The median has no exact value here; the dashed line in the picture is its law at σ = √d_k, "
        "1/(1 + cosh(σ·g)), g the median gap between the two largest of n standard normal numbers. It holds where it "
        "is small, and is drawn, not judged. Where a bar of the picture leaves it below, its end is in the table.",
        "中央値にはここで使える厳密値がない。図の破線は σ = √d_k での法則 1/(1 + cosh(σ·g)) で、g は n 個の標準正規乱数"
        "の最大値と 2 番目の値の差の中央値である。値が小さいところで成り立つ。線は描くだけで、判定には使わない。図の下"
        "端を越える棒の端は表にある。",
    ),
    "weights": (
        "The same scores on a trained model, which is read from a package and never imported. For any queries and "
        "keys, exactly,",
        "学習済みモデルでの同じスコア。重みはパッケージのファイルから読むだけで、モデルのコードは import しない。どんな"
        "クエリとキーについても、次の等式が厳密に成り立つ。",
    ),
    "weights identity": (
        "with s the scale 1/√d_k, n the number of tokens, M_q the second moment of the queries (the mean of q qᵀ) and "
        "Σ_k the covariance of the keys. It splits into what independent isotropic components would give "
        "(s² d_k σ_q² σ_k²), what the alignment of the two covariances adds, and what the mean query adds. Made by "
        "`attnproof report`; the law for independent components is on the page [Scaling](scaling.md), what the "
        "quantities of the right-hand columns mean on [Saturation](saturation.md).",
        "s はスケール 1/√d_k、n はトークン数、M_q はクエリの二次モーメント(q qᵀ の平均)、Σ_k はキーの共分散。右辺は 3 "
        "つに分かれる:独立で等方的な成分なら得られる分(s² d_k σ_q² σ_k²)、2 つの共分散の向きが揃うことで加わる分、クエ"
        "リの平均が加える分である。このページは `attnproof report` "
        "が作る。独立な成分の法則は[スケーリング](scaling.ja.md)、表の右側の量の意味は[飽和](saturation.ja.md)のページ"
        "にある。",
    ),
    "weights columns": (
        "Shares are of the row variance and add up to 1 on each head and text, not after taking medians.",
        "割合は行の分散に対するもので、ヘッドと文ごとに足すと 1 になる(中央値どうしを足しても 1 にはならない)。",
    ),
    "path": (
        "In self-attention any two tokens are one step apart: output i reads value j directly, with the weight α_ij, "
        "however many tokens lie between. In a recurrent network (RNN, LSTM) the same signal must pass through every "
        "position between, and each adds one factor to a product: it degrades with the distance. What attention pays "
        "is dilution, by the number of keys and not by the distance, and n² scores. Made by `attnproof report`.",
        "自己アテンションでは、どの 2 つのトークンも 1 段で結ばれる。出力 i は、間にいくつトークンがあっても、重み α_ij"
        " でバリュー j を直接読む。再帰型ネットワーク(RNN、LSTM)では同じ信号が間のすべての位置を通り、1 つ通る"
        "ごとに積の因子"
        "が 1 つ増えるので、距離とともに劣化する。アテンションが払う代償は、距離ではなくキーの数による希釈と、n² 個のス"
        "コアの計算である。このページは `attnproof report` が作る。",
    ),
    "path attention": (
        "The derivative of an output by a value is one weight (`recurrence.attention_value_path`); nothing between j "
        "and i appears in it:",
        "出力をバリューで微分すると重み 1 つになる(`recurrence.attention_value_path`)。j と i の間にあるもの"
        "は現れない。",
    ),
    "path dilution": (
        "Here δ is Kronecker's. For scores that are independent and N(0, v), without a mask or a positional term, the "
        "weight is 1/n on average at every distance (`depth.path_mean`), and its mean square is the concentration "
        "p₂ = Σα² shared by n keys (`depth.path_square`):",
        "δ はクロネッカーのデルタ。スコアが独立に N(0, v) に従い、マスクも位置の項もないとき、重みの平均はどの距離でも "
        "1/n(`depth.path_mean`)、二乗平均は集中度 p₂ = Σα² を n 個のキーで分けた値になる(`depth.path_square`)。",
    ),
    "path rnn": (
        "A linear RNN h_t = W h_(t−1) + b_t carries a signal over L positions through P_L = W^L, a product of L "
        "factors (`recurrence.linear_product`), whose size is at most the product of the factors' sizes "
        "(`recurrence.linear_norm`). With independent matrices of N units, entries N(0, g²/N), and J = W_L … W_1, a "
        "unit vector u keeps, in logarithmic mean,",
        "線形 RNN h_t = W h_(t−1) + b_t では、信号は L 個の因子の積 P_L = W^L を通って L 個先の位置に届く"
        "(`recurrence.linear_product`)。その大きさは因子の大きさの積以下である(`recurrence.linear_norm`)。成分が "
        "N(0, g²/N) に従う独立な N 次行列の積 J = W_L … W_1 なら、単位ベクトル u に残る大きさの対数平均は",
    ),
    "path lstm": (
        "(ψ is the digamma function; ‖W_t u‖² has the law of g² χ²_N/N, whatever u is). The cell of an LSTM, with its "
        "gates held fixed, carries the product of its forget gates (`recurrence.lstm_cell_path`):",
        "となる(ψ はディガンマ関数。u が何であっても ‖W_t u‖² は g² χ²_N/N の分布に従う)。LSTM のセルは、ゲートを固定"
        "すると、忘却ゲートの積を運ぶ(`recurrence.lstm_cell_path`)。",
    ),
    "path steps": (
        "Both are products of L factors: where the typical factor is below 1 they die out exponentially, above 1 they "
        "blow up. The mean is no guide to what is typical: it is carried by rare replicates, so logarithms are "
        "compared with their exact means, and medians are shown.",
        "どちらも L 個の因子の積なので、典型的な因子が 1 より小さければ指数的に消え、大きければ発散する。積の平均はまれ"
        "な標本が支えるので、典型的な値の目安にならない。そこで対数を厳密な平均と比べ、中央値を示す。",
    ),
    "path between": (
        "One drawn example of each, {} tokens of which every fourth is shown: how strongly token j reaches token i. "
        "Attention (no mask, d_k = {}) reaches from everywhere to everywhere, thinly; the RNN (N = {}, g = {}) and the "
        "LSTM (gate before its sigmoid: mean {:g}, standard deviation {:g}) reach nearby tokens well, and fade with "
        "every position that lies between.",
        "それぞれ乱数で 1 例ずつ作った。{} 個のトークンのうち 4 つごとに、トークン j がトークン i にどれだけの強さで届"
        "くかを示す。アテンション(マスクなし、d_k = {})はどこからどこへも薄く届く。RNN(N = {}、g = {})と LSTM(シグモイ"
        "ドの前のゲートの平均 {:g}、標準偏差 {:g})は近くのトークンにはよく届くが、間に位置が 1 つ増えるごとに薄れる。",
    ),
    "path counts": (
        "Multiplications for a layer on n tokens of width d (k: width of a convolution), the steps that must follow "
        "each other, and the longest path between two tokens; the counts are proved on the page of derivations. "
        "Source: Vaswani et al. (2017), section 4, table 1.",
        "幅 d のトークン n 個に対する 1 層の乗算回数(k は畳み込みの幅)、逐次に行うしかない段数、2 つのトークンを結ぶ最"
        "長の経路。回数は導出のページで証明されている。出典:Vaswani et al. (2017)、4 節、表 1。",
    ),
    "index": (
        "What `attnproof report` proved, compared and measured. Each page but the findings is made from the objects "
        "that were checked, and made again to be compared in every run of the tests.",
        "`attnproof report` が証明し、照合し、測定した結果。所見を除くどのページも検査されたオブジェクトそのものから作"
        "られ、テストのたびに作り直して比較される。",
    ),
    "index topics": (
        "Topic by topic, the contents of the text on Transformers that this project sets out to verify: the claim that "
        "states it (with its proof on the page of derivations), and where it is measured.",
        "このプロジェクトが検証の対象とする Transformer の解説の内容を、項目ごとに示す。中央の列はそれを述べる命題(判"
        "定は導出のページにある)、右の列は測定のあるページ。",
    ),
    "symbols": (
        "Throughout: i, j count tokens from 0, c and e components; α is a row of softmax weights, p_r = Σ α^r, "
        "J = diag(α) − ααᵀ its Jacobian, H its entropy, Z the sum of exponentials, s the scale; δ with two indices is "
        "Kronecker's. Sizes, laws and definitions stand with each claim. By an example of each:",
        "全体を通じて、i、j は 0 から数えたトークン、c と e は成分の番号。α は 1 行のソフトマックスの重"
        "み、p_r = Σ α^r、"
        "J = diag(α) − ααᵀ はそのヤコビ行列、H はエントロピー、Z は指数の和、s はスケール。添字が 2 つの δ はクロネッカ"
        "ーのデルタ。サイズ、分布、定義は各命題に書かれている。以下、記号ごとに例を 1 つ示す。",
    ),
    "reading verdicts": (
        "A verdict is one of, from weakest to strongest: `Refuted` (with a witness), `Unknown`, `Assumed`, `Numeric` "
        "(at stated points, within a stated bound), `ExactAtSizes`, `Proved` (all sizes). A study *agrees* when no "
        "measured value is further from its law than chance allows (family-wise p at least 0.001) **and** every one "
        "lies within a stated margin by two one-sided tests (p below 0.05); that nothing differs is not enough.",
        "判定は弱い順に `Refuted`(反例つき)、`Unknown`、`Assumed`、`Numeric`(示した点で、示した範囲内)、`ExactAtSizes`"
        "、`Proved`(すべてのサイズ)。測定が「一致」となるのは、法則からのずれが偶然の範囲に収まり(族全体の p が 0.001 "
        "以上)、**かつ**どの値も決めた許容幅に入ることが 2 つの片側検定で示された(p が 0.05 未満)ときである。差が見つ"
        "からないだけでは足りない。",
    ),
}

# Short phrases: the English is the key; one with braces is a template.
PHRASES: dict[str, str] = {
    # statistics
    "smallest Holm-adjusted p {:.2g} over {} levels; χ² = {:.1f}, p = {:.2g}": (
        "Holm 補正後の最小の p は {:.2g}(水準 {} 個)、χ² = {:.1f}、p = {:.2g}"
    ),
    "smallest Holm-adjusted p {:.2g} over {} slopes": "Holm 補正後の最小の p は {:.2g}(傾き {} 個)",
    "smallest Holm-adjusted p {:.2g} over {} means": "Holm 補正後の最小の p は {:.2g}(平均 {} 個)",
    "largest p of the two one-sided tests {:.2g}": "2 つの片側検定の最大の p は {:.2g}",
    "every level is within {:.0%} of the claim's": "すべての水準が命題の値から {:.0%} 以内",
    "every mean is the exact one": "すべての平均が厳密値に等しい",
    "every mean is within {:.0%} of the exact one": "すべての平均が厳密値から {:.0%} 以内",
    "attention is within {:.0%}, logarithms within {} of the exact mean": (
        "厳密な平均から、アテンションは {:.0%} 以内、対数は {} 以内"
    ),
    "mean of": "量",
    "exact": "厳密値",
    "Means": "平均",
    # components
    "{}, mean {:g}, standard deviation {:g}": "{}、平均 {:g}、標準偏差 {:g}",
    "q: {}; k: {}": "q:{}。k:{}",
    "standard normal": "標準正規分布",
    "uniform on ±√3": "±√3 の一様分布",
    "±1 with equal probability": "等確率の ±1",
    "exponential less its mean": "平均を引いた指数分布",
    "Student's t with 9 degrees of freedom, at unit variance": "自由度 9 の t 分布(分散 1 に規格化)",
    "Variance of q·k against d_k: proportional to d_k unscaled, free of d_k scaled; measured over claimed": (
        "d_k に対する q·k の分散:スケールなしでは d_k に比例し、スケールすると d_k によらない。測定値と命題の比"
    ),
    # saturation
    "Saturation": "飽和",
    "Saturation of softmax against d_k, {} keys": "d_k に対するソフトマックスの飽和(キー {} 個)",
    "entropy": "エントロピー",
    "‖J‖_F of a row: root mean square beside the median": "行ごとの ‖J‖_F:二乗平均平方根と中央値",
    "root mean square": "二乗平均平方根",
    "median": "中央値",
    "5 % quantile": "5 % 点",
    "95 % quantile": "95 % 点",
    "share of rows below {}": "{} 未満の行の割合",
    "Saturation of softmax against d_k: the mean falls slowly without scaling, the median dies out": (
        "d_k に対するソフトマックスの飽和:スケールなしでは平均はゆっくり減り、中央値は消える"
    ),
    # weights
    "Real weights": "実際のモデルの重み",
    "Scores of a real model: {} ({}, {} layers of {} heads)": "実在のモデルのスコア:{}({}、{} 層、各 {} ヘッド)",
    "row variance = scale²·tr(M_q Σ_k) on every head": "どのヘッドでも、行の分散 = scale²·tr(M_q Σ_k)",
    "|measured − identity| within the worst-case rounding bound, over {} heads and texts": (
        "|測定値 − 恒等式| は最悪の丸め誤差の限界内(ヘッドと文の組 {} 個)"
    ),
    "|measured − identity| up to {:.1e} times the worst-case rounding bound, over {} heads and texts": (
        "|測定値 − 恒等式| は最悪の丸め誤差の限界の最大 {:.1e} 倍(ヘッドと文の組 {} 個)"
    ),
    "Medians over heads and texts, by layer": "層ごとの中央値(ヘッドと文にわたる)",
    "layer": "層",
    "row sd of the scores": "スコアの行内標準偏差",
    "isotropic share": "等方分の割合",
    "alignment share": "整列分の割合",
    "query-mean share": "クエリ平均分の割合",
    "entropy (nat)": "エントロピー(nat)",
    "share of rows with ‖J‖_F < {}": "‖J‖_F < {} の行の割合",
    "All heads (intervals resample whole texts)": "全ヘッド(区間は文単位の再標本化による)",
    "median over heads": "ヘッドにわたる中央値",
    "value": "値",
    "smallest head": "最小のヘッド",
    "largest head": "最大のヘッド",
    "row variance of the scores": "スコアの行内分散",
    "isotropic law over measured": "等方的な法則 / 測定値",
    "largest weight": "最大の重み",
    "median ‖J‖_F of a row": "行の ‖J‖_F の中央値",
    "Inputs": "入力",
    "text": "文",
    "tokens": "トークン数",
    "unknown to the vocabulary": "語彙にないトークン",
    "The Japanese sentence is shown, not measured: {:.0%} of its tokens are unknown to this vocabulary.": (
        "日本語の文は示すだけで、測定には使わない。トークンの {:.0%} がこの語彙にないため。"
    ),
    "The heads of a real model: row variance beside the exact identity and the isotropic law; where rows saturate": (
        "実在のモデルのヘッド:行の分散と厳密な恒等式、等方的な法則。行が飽和する場所"
    ),
    # paths
    "Paths": "経路",
    "One step": "1 段で届く",
    "Through every position between": "間のすべての位置を通る",
    "Measured": "測定",
    "Between any two tokens": "どの 2 つのトークンの間でも",
    "What it costs": "計算量",
    "How far a signal carries: attention, RNN, LSTM": "信号はどこまで届くか:アテンション、RNN、LSTM",
    "attention: α": "アテンション:α",
    "attention: α²": "アテンション:α²",
    "RNN: ln‖J u‖": "RNN:ln‖J u‖",
    "LSTM: ln Π f": "LSTM:ln Π f",
    "Means over a distance L": "距離 L での平均",
    "Medians: what a typical path carries": "中央値:典型的な経路が運ぶ大きさ",
    "L": "L",
    "attention weight": "アテンションの重み",
    "RNN ‖J u‖": "RNN の ‖J u‖",
    "LSTM Π f": "LSTM の Π f",
    "Attention reaches any token in one step; an RNN passes through every position between, and fades with distance": (
        "アテンションは 1 段でどのトークンにも届く。RNN は間のすべての位置を通り、距離とともに薄れる"
    ),
    "How strongly each token reaches each other: attention everywhere alike, RNN and LSTM only nearby": (
        "各トークンが互いに届く強さ:アテンションはどこへも同程度、RNN と LSTM は近くだけ"
    ),
    "kind of layer": "層の種類",
    "multiplications": "乗算回数",
    "sequential steps": "逐次の段数",
    "longest path": "最長の経路",
    "self-attention": "自己アテンション",
    "recurrent": "再帰",
    "convolution of width k, stacked": "幅 k の畳み込み(多層)",
    "dilated convolutions, stacked": "拡張畳み込み(多層)",
    # the index
    "Reports": "レポート",
    "page": "ページ",
    "what it shows": "内容",
    "made again by": "再実行",
    "topic": "項目",
    "claims": "命題",
    "measured on": "測定",
    "every claim with its steps, conditions, source and verdict": "全命題のステップ、条件、出典、判定",
    "claims against numbers: 50 digits, float64, `compute`": ("命題と数値の照合:50 桁、float64、`compute`"),
    "the variance of q·k against d_k, with and without 1/√d_k": "d_k に対する q·k の分散、1/√d_k の有無",
    "how far softmax saturates, and its gradient with it": "ソフトマックスはどこまで飽和し、勾配はどうなるか",
    "one step between any two tokens, against RNN and LSTM": "どの 2 つのトークンも 1 段、RNN・LSTM との比較",
    "the heads of a trained 6-layer encoder": "学習済みの 6 層エンコーダのヘッド",
    "faults found in other libraries by `attnproof check` (English)": (
        "`attnproof check` がほかのライブラリで見つけた問題(英語)"
    ),
    "Findings": "所見",
    "Contents": "題材と場所",
    "Reading a verdict": "判定の読み方",
    "Q = XW^Q, K = XW^K, V = XW^V, all from one X": "Q = XW^Q、K = XW^K、V = XW^V を 1 つの X から作る",
    "score(i, j) = q_i·k_j, S = QKᵀ": "score(i, j) = q_i·k_j、S = QKᵀ",
    "the variance of a score grows in proportion to d_k": "スコアの分散は d_k に比例して大きくなる",
    "without scaling softmax saturates and its gradient vanishes": "スケールしないソフトマックスは飽和し、勾配が消える",
    "S' = S/√d_k": "S' = S/√d_k",
    "α = softmax of each row of S'; each row sums to 1": "α = S' の行ごとのソフトマックス、各行の和は 1",
    "z_i = Σ_j α_ij v_j, Z = softmax(QKᵀ/√d_k)V": "z_i = Σ_j α_ij v_j、Z = softmax(QKᵀ/√d_k)V",
    "any two tokens are one step apart; an RNN or LSTM passes through all between and degrades": (
        "離れた 2 つのトークンも 1 段で結ばれる。RNN・LSTM は間をすべて通り、劣化する"
    ),
    "several heads": "マルチヘッド",
    "residual connections": "残差接続",
    "masks: causal, window, padding": "マスク:因果、窓、パディング",
    "the gradients of all of it": "以上すべての勾配",
}

# Why a comparison did not apply: pattern of the English -> Japanese with the pattern's groups.
REASONS: tuple[tuple[str, str], ...] = (
    (r"compute has no call for this quantity", "`compute` にこの量を計算する関数がない"),
    (r"(.+) has no value at numbers here", r"\1 はここでは数値を持たない"),
    (r"(.+) has no law of single entries", r"\1:成分ごとの分布がない"),
    (r"a statement of kind '(.+)' is not about values at numbers", r"種類 \1 の命題は数値での値を述べない"),
    (r"a cumulant above the fourth", "4 次を超えるキュムラント"),
    (r"a power of a negative number", "負の数の累乗"),
    (r"no operation tree: (.+) has no operation", r"演算木がない:\1 に当たる演算がない"),
    (r"no operation tree: a definition by recursion", "演算木がない:再帰による定義"),
    (
        r"no operation tree: an axis of (.+) is (.+): the axes of an input are plain sizes",
        r"演算木がない:\1 の軸が \2(入力の軸は単独のサイズに限る)",
    ),
    (r"no operation tree: the output index (.+) needs (InRange.+)", r"演算木がない:出力の添字 \1 には \2 が要る"),
)
