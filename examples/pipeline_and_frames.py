"""
Data frames, a pipeline, and files
==================================

Measurements often come as a table with a column that says which batch each row belongs to. This
example goes from such a table to named latents, inside a scikit-learn ``Pipeline``, and keeps the
fitted model in a file.
"""

# %%
# A table with a batch column
# ---------------------------
# The table stands for one of your own: twelve batches, six measured columns, a sensor that is dead
# and always says the same, and one column of labels.
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

import crlearn
from crlearn import IVAE
from crlearn.data import make_segments, to_pandas

world = make_segments(n_latents=3, n_features=6, n_segments=12, n_samples=400, random_state=1)
table = to_pandas(world).rename(columns={"environment": "batch"})
table["batch"] = "batch " + table["batch"].astype(str).str.zfill(2)
table["dead_sensor"] = 1.0
print(table.groupby("batch").mean().round(2).head(3))

# %%
# Pipeline with pandas in and out
# -------------------------------
# The batch labels are ``y``. The first step drops columns that never vary. With ``set_output`` the
# latents come back as a data frame with the index of the input.
pipeline = make_pipeline(
    VarianceThreshold(),
    IVAE(n_latents=3, max_epochs=200, random_state=0),
).set_output(transform="pandas")
features = table.drop(columns="batch")
pipeline.fit(features, table["batch"])
latents = pipeline.transform(features)
print(latents.head(3).round(2))

# %%
# New rows need no label: the encoder reads the measurements alone.
print(pipeline.transform(features.sample(2, random_state=0)).round(2))

# %%
# What changes from batch to batch
# --------------------------------
by_batch = latents.groupby(table["batch"])
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for ax, values, title, colours, range_ in (
    (axes[0], by_batch.mean(), "mean", "RdBu_r", (-1.4, 1.4)),
    (axes[1], by_batch.std(), "standard deviation", "viridis", (0, 1.4)),
):
    image = ax.imshow(values, aspect="auto", cmap=colours, clim=range_)
    ax.set_xticks(range(3), values.columns)
    ax.set_yticks(range(len(values)), values.index)
    ax.set(xlabel="recovered latent", title=f"{title} in each batch")
    figure.colorbar(image, ax=ax)
plt.show()

# %%
# Save and load
# -------------
# A fitted estimator is one file of arrays and JSON, without pickle: reading it runs no code from
# the file. ``crlearn.save`` writes a pipeline, too, if all its steps are crlearn's; here the other
# steps are kept by their own means.
model = pipeline[-1]
kept = pipeline[:-1].transform(features)
with TemporaryDirectory() as folder:
    path = Path(folder) / "model.crl"
    model.save(path)
    again = crlearn.load(path)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB, {again}")
again.set_output(transform="pandas")
print("the same latents, to the bit:", again.transform(kept).equals(model.transform(kept)))
